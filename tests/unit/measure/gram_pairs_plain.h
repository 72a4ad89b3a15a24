#pragma once

#include "csrc/measure/simd/gram.h"

namespace headscope::testing {

/// add_gram on pairs of tokens, multiplied by way of f32 on the vectors of the chosen SIMD target,
/// in the order of the instruction's sums.
void add_gram_pairs(const simd::HeadTokens& z, const float* shift, simd::GramShare share,
                    float* workspace, float* gram, float* sum);

}  // namespace headscope::testing
