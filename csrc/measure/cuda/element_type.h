#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/launch.h"

namespace headscope::cuda {

/// f64 has no kernel.
inline bool has_kernel(at::ScalarType type) {
  return type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

/// type: has_kernel().
inline kernels::ElementType element_type(at::ScalarType type) {
  return type == at::kBFloat16 ? kernels::ElementType::kBFloat16
         : type == at::kHalf   ? kernels::ElementType::kFloat16
                               : kernels::ElementType::kFloat32;
}

}  // namespace headscope::cuda
