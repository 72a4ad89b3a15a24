#pragma once

#include <cstdint>

#include "csrc/measure/simd/element.h"

// Second moments of one head, with the widest vectors of the CPU at hand (docs/kernels/gram.md).
namespace headscope::simd {

/// One head's outputs in one sequence, read in place. Strides in elements.
struct HeadTokens {
  const void* data;  ///< of token 0
  Element element;
  int64_t tokens, width;  ///< T, D
  int64_t token_stride, width_stride;
  const bool* keep = nullptr;  ///< [T], false: the token does not count (nor is it read)
  int64_t keep_stride = 1;
};

/// Share `index` of `of` equal parts of a Gram matrix: its tiles are dealt out, so that several
/// threads work at one head without buffers to add up; every entry is summed in the same order
/// whatever the number of shares.
struct GramShare {
  int64_t index = 0;
  int64_t of = 1;
};

/// Bytes of workspace for add_gram, at most 64 KB while D <= 8,000; sum_bytes: sizeof a sum.
int64_t gram_workspace_bytes(int64_t width, int64_t sum_bytes);

/// Adds one sequence to the upper triangle of a head's second moment about a shift.
///
///   G[i, j] += sum_t (z_ti - c_i)(z_tj - c_j)   for j >= i
///   s[i]    += sum_t (z_ti - c_i)
///
/// shift      [D]
/// workspace  gram_workspace_bytes, aligned to 64 bytes
/// gram       [D, D] row-major; below the diagonal it is left undefined
/// sum        [D]
///
/// Error of an entry: (64 + T / 64 + 3) eps sum |x_i x_j|; gram_amx.h has that of 16-bit elements
/// where the CPU has AMX. bf16 about zero are multiplied two tokens at a time where the CPU can:
/// elements and sums below 2^-126 then count as zero.
void add_gram(const HeadTokens& z, const float* shift, GramShare share, float* workspace,
              float* gram, float* sum);
void add_gram(const HeadTokens& z, const double* shift, GramShare share, double* workspace,
              double* gram, double* sum);

/// Whether the vectors are those of AVX-512. (hwy::SupportedTargets asks the CPU anew at every
/// call, some 20 us in a virtual machine.)
bool uses_avx512();
/// Whether add_gram multiplies pairs of tokens.
bool takes_token_pairs(const HeadTokens& z, const float* shift);
/// What that lacks in this process, nullptr where it can be.
const char* token_pairs_missing();
/// Like hwy::SetSupportedTargetsForTest: false keeps add_gram on single tokens.
void allow_token_pairs_for_test(bool allowed);

}  // namespace headscope::simd
