#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/measure/simd/element.h"

namespace headscope::cpu {

/// The kernels' name for an activation's dtype, which the operators have checked.
inline simd::Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kDouble:
      return simd::Element::kF64;
    case at::kBFloat16:
      return simd::Element::kBF16;
    case at::kHalf:
      return simd::Element::kF16;
    default:
      return simd::Element::kF32;
  }
}

}  // namespace headscope::cpu
