#pragma once

#include <ATen/core/Tensor.h>

#include "csrc/measure/simd/element.h"

namespace headscope::cpu {

/// The kernels' name for an activation's dtype, which the operators have checked.
inline Element element_of(const at::Tensor& x) {
  switch (x.scalar_type()) {
    case at::kDouble:
      return Element::kF64;
    case at::kBFloat16:
      return Element::kBF16;
    case at::kHalf:
      return Element::kF16;
    default:
      return Element::kF32;
  }
}

}  // namespace headscope::cpu
