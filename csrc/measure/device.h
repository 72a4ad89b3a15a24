#pragma once

#include <ATen/core/Tensor.h>

namespace headscope::measure {

/// Whether work on the tensor's device is being captured into a graph now rather than run.
bool is_captured(const at::Tensor& tensor);

}  // namespace headscope::measure
