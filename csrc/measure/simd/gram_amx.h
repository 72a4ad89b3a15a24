#pragma once

#include <cstdint>

#include "csrc/measure/simd/element.h"
#include "csrc/measure/simd/gram.h"

// Second moments of 16-bit activations by Intel AMX (docs/kernels/gram.md). add_gram calls this
// where it can.
namespace headscope::simd {

/// Tokens that are packed and summed at a time.
inline constexpr int64_t kAmxBlockTokens = 64;
/// The widest head that add_gram_amx takes.
inline constexpr int64_t kAmxWidestHead = 256;

/// Bytes of a packed block of z, each element of which becomes up to two (bf16) or three (f16) bf16
/// terms; 0: AMX does not take such heads, whose block would exceed 64 KB.
constexpr int64_t amx_block_bytes(Element element, int64_t width) {
  const int64_t terms = element == Element::kBF16 ? 2 : element == Element::kF16 ? 3 : 0;
  const int64_t bytes = terms * kAmxBlockTokens * ((width + 15) / 16 * 16) * 2;
  return width <= kAmxWidestHead && bytes <= 64 << 10 ? bytes : 0;
}

/// What AMX lacks in this process, nullptr where it can be used. The tile registers are never asked
/// for here: sigaltstack would from then on refuse the host stacks that cannot hold them. A host
/// that computes in bf16 has them, for oneDNN asks.
const char* amx_missing();

/// Like hwy::SetSupportedTargetsForTest: false keeps add_gram on its vectors.
void allow_amx_for_test(bool allowed);

/// add_gram; false and nothing done where AMX is missing or does not take such heads. Error of an
/// entry:
///
///   (64 + T / 64 + 3) eps sum (|x_i| + 2 |d_i|)(|x_j| + 2 |d_j|)
///       with x = z - c and, of bf16 z, d = c - bf16(c), else 0
///
/// No bf16 is nearer to c than bf16(c), so |d| <= |x|. Terms below 2^-126 count as zero, |x| or |c|
/// of 2^128 - 2^119 and more as infinite.
bool add_gram_amx(const HeadTokens& z, const float* shift, GramShare share, float* workspace,
                  float* gram, float* sum);

}  // namespace headscope::simd
