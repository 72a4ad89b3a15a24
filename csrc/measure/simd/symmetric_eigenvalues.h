#pragma once

#include <cstdint>

// Eigenvalues of many small symmetric matrices, one matrix a SIMD lane (docs/kernels/
// symmetric_eigenvalues.md). No torch here: raw pointers, no allocation outlives a call.
namespace headscope::simd {

/// Largest order of the kernels. A call holds n (n + 1) / 2 + 17 n vectors, 19 n where there are 32
/// registers (AVX2: 101 KB at n = 64, 1.2 MB at n = 256); beyond that its matrices leave the cache
/// and LAPACK's blocking wins.
inline constexpr int64_t kMaxOrder = 256;

/// QL sweeps for a matrix of order n before it is given up; 1.7 n are usual.
inline constexpr int64_t sweep_limit(int64_t n) { return 8 * n + 16; }

enum class SolveState : uint8_t {
  kSolved,
  kNotFinite,     ///< NaN or Inf anywhere in the matrix; its values are NaN
  kNotConverged,  ///< within the sweeps allowed; its values are unusable
};

/// Instruction sets that the kernels are compiled for, bits of hwy/targets.h.
int64_t eigenvalue_targets();

/// Matrices to a call that keep every register at work.
int64_t eigenvalue_grain();
/// Matrices that are reduced together, one a lane of f32: a call of a multiple of it wastes none.
int64_t eigenvalue_lanes();
/// Matrices that are iterated together, one a lane of f64: half of them.
int64_t eigenvalue_column();

/// Eigenvalues of `count` symmetric matrices, ascending.
///
/// matrices  [count, n, n] contiguous, 1 <= n <= kMaxOrder; the lower triangle counts
/// values    [count, n] f64
/// states    [count]
///
/// f32 is reduced in f32, the rest is f64. Errors relative to the largest magnitude: up to
/// (16 + 2 sqrt n + n / 2) 2^-24 (f32) or (16 + 16 sqrt n) 2^-53 (f64).
/// A matrix's result has the same bits whatever else is in the call (on one instruction set).
/// Thread-safe; throws std::bad_alloc. Cost: 4/3 n^3 + 9 n^2 FLOP a matrix.
void symmetric_eigenvalues(const float* matrices, int64_t count, int64_t n, int64_t max_sweeps,
                           double* values, SolveState* states);
void symmetric_eigenvalues(const double* matrices, int64_t count, int64_t n, int64_t max_sweeps,
                           double* values, SolveState* states);

}  // namespace headscope::simd
