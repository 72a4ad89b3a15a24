#pragma once

#include "csrc/measure/simd/gram.h"

namespace headscope::testing {

/// add_gram_amx on emulated tiles, packed by the vectors of the chosen SIMD target.
void add_gram_emulated(const simd::HeadTokens& z, const float* shift, simd::GramShare share,
                       float* workspace, float* gram, float* sum);

}  // namespace headscope::testing
