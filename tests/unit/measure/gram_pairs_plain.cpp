#include "tests/unit/measure/gram_pairs_plain.h"

// clang-format off: foreach_target.h compiles this file once for each target and comes first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/unit/measure/gram_pairs_plain.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "csrc/measure/simd/gram_vectors-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

/// TokenPairs for every target.
struct PlainPairs {
  static constexpr int64_t kTokens = 2;

  template <class V>
  static HWY_INLINE V multiply_add(V x, V y, V sum) {
    const hn::DFromV<V> d;
    const hn::RebindToUnsigned<decltype(d)> du;
    const auto u = hn::BitCast(du, x), v = hn::BitCast(du, y), high = hn::Set(du, 0xffff0000u);
    const auto later = [&](auto word) HWY_ATTR { return hn::BitCast(d, hn::And(word, high)); };
    const auto earlier = [&](auto word)
                             HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(word)); };
    // Products of bf16 are exact.
    sum = hn::Add(hn::Mul(later(u), later(v)), sum);
    return hn::Add(hn::Mul(earlier(u), earlier(v)), sum);
  }
};

void add_gram_pairs_of_target(const HeadTokens& z, const float* shift, GramShare share,
                              float* workspace, float* gram, float* sum) {
  add_tokens<PlainPairs>(z, shift, share, workspace, gram, sum);
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headscope::simd {
HWY_EXPORT(add_gram_pairs_of_target);
}

namespace headscope::testing {

void add_gram_pairs(const simd::HeadTokens& z, const float* shift, simd::GramShare share,
                    float* workspace, float* gram, float* sum) {
  using namespace simd;  // what HWY_EXPORT declares
  HWY_DYNAMIC_DISPATCH(add_gram_pairs_of_target)(z, shift, share, workspace, gram, sum);
}

}  // namespace headscope::testing
#endif
