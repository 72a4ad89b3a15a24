#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

// What the tests ask of the solver beyond its entry point.
namespace headscope::cpu {

/// max_sweeps: QL sweeps before a matrix is left to LAPACK, absent: simd::sweep_limit(n).
at::Tensor symmetric_eigenvalues(const at::Tensor& matrices, std::optional<int64_t> max_sweeps);

/// Matrices of this process that the SIMD kernel gave up and LAPACK solved.
int64_t eigenvalue_fallbacks();

}  // namespace headscope::cpu
