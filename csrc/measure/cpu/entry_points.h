#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "headscope/measure.h"

// CPU kernels behind the operators of csrc/measure/ops.cpp; arguments are checked there.
namespace headscope::cpu {

using OptionalTensor = std::optional<at::Tensor>;

void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
                      const at::Tensor& shift, const OptionalTensor& keep);

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> attention_mass(
    const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows, const at::Tensor& targets,
    const at::Tensor& offsets, int64_t groups, const AttentionCall& call);

at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const at::Tensor& rows, const AttentionCall& call);

/// max_sweeps: QL sweeps before a matrix is left to LAPACK, absent: sweep_limit(n).
at::Tensor symmetric_eigenvalues(const at::Tensor& matrices,
                                 std::optional<int64_t> max_sweeps = std::nullopt);

/// Matrices of this process that the SIMD kernel gave up and LAPACK solved.
int64_t eigenvalue_fallbacks();

}  // namespace headscope::cpu
