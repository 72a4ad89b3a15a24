#include "tests/unit/measure/gram_amx_emulated.h"

#include "tests/support/numeric/emulated_tiles.h"

// clang-format off: foreach_target.h compiles this file once for each target and comes first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/measure/gram_amx_emulated.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "csrc/measure/simd/gram_amx-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

void add_gram_of_target(const HeadTokens& z, const float* shift, GramShare share, float* workspace,
                        float* gram, float* sum) {
  add_gram_tiles<testing::EmulatedTiles>(z, shift, share, workspace, gram, sum);
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headscope::simd {
HWY_EXPORT(add_gram_of_target);
}

namespace headscope::testing {

void add_gram_emulated(const simd::HeadTokens& z, const float* shift, simd::GramShare share,
                       float* workspace, float* gram, float* sum) {
  using namespace simd;  // what HWY_EXPORT declares
  HWY_DYNAMIC_DISPATCH(add_gram_of_target)(z, shift, share, workspace, gram, sum);
}

}  // namespace headscope::testing
#endif
