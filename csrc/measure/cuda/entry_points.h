#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "headscope/measure.h"

// CUDA kernels behind the operators of csrc/measure/ops.cpp; arguments are checked there. Ordered
// on the current stream of the inputs' device, never waited for; workspace from torch's caching
// allocator. What the kernels do not take (f64, widths above 256) goes to cuBLAS, cuSOLVER or
// compositions of torch's operators. Every failure is an exception that names the operator.
namespace headscope::cuda {

using OptionalTensor = std::optional<at::Tensor>;
using RowTensors =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
                      const at::Tensor& shift, const OptionalTensor& keep);

/// rows, targets and offsets may be on the host: they are checked there and copied through pinned
/// memory. On the device positions out of range give NaN.
RowTensors attention_mass(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                          const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                          const AttentionCall& call);

at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& rows, const AttentionCall& call);

at::Tensor symmetric_eigenvalues(const at::Tensor& matrices);

}  // namespace headscope::cuda
