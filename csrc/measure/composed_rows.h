#pragma once

#include <ATen/core/Tensor.h>

#include <tuple>

#include "headscope/measure.h"

// Sampled softmax rows from torch's own operators, on whatever device the tensors are: the route
// for what a device has no kernel for. Nothing is waited for; memory is B Hq R Tk sums. Semantics
// and shapes: headscope/measure.h; rows, targets and offsets on the device of q. Positions out of
// range are clamped rather than left to the device's assertion, which would end the process.
namespace headscope::measure {

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> composed_mass(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows, const at::Tensor& targets,
    const at::Tensor& offsets, int64_t groups, const AttentionCall& call);

at::Tensor composed_output(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& rows, const AttentionCall& call);

}  // namespace headscope::measure
