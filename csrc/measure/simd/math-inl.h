// Elementary functions, once for each SIMD target (hence no #pragma once: the guard toggles).
#if defined(HEADSCOPE_MEASURE_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_MEASURE_SIMD_MATH_INL_H_
#undef HEADSCOPE_MEASURE_SIMD_MATH_INL_H_
#else
#define HEADSCOPE_MEASURE_SIMD_MATH_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// exp x for x <= 0; 0 below -87 (where f32 would soon be subnormal), and exactly 1 at 0. Relative
/// error below 1.5e-7 in f32 and 2.3e-16 in f64. NaN gives 0.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V exp_negative(D d, V x) {
  if constexpr (std::is_same_v<hn::TFromD<D>, double>) {
    return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -700.0)),
                              hn::Exp(d, hn::Max(x, hn::Set(d, -700.0))));
  } else {
    // x = n ln 2 + r, |r| <= ln 2 / 2; ln 2 in two parts so that n ln 2 is exact; e^r by the
    // minimax polynomial of Cephes; times 2^n through the exponent bits.
    const V clamped = hn::Max(x, hn::Set(d, -87.0f));
    const V n = hn::Round(hn::Mul(clamped, hn::Set(d, 1.44269504f)));
    V r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), clamped);
    r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
    V p = hn::Set(d, 1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                          5.0000001201e-1f}) {
      p = hn::MulAdd(p, r, hn::Set(d, c));
    }
    p = hn::MulAdd(p, hn::Mul(r, r), hn::Add(r, hn::Set(d, 1.0f)));
    const hn::RebindToSigned<D> di;
    const auto exponent = hn::ShiftLeft<23>(hn::Add(hn::ConvertTo(di, n), hn::Set(di, 127)));
    return hn::IfThenElseZero(hn::Ge(x, hn::Set(d, -87.0f)), hn::Mul(p, hn::BitCast(d, exponent)));
  }
}

#if HWY_TARGET != HWY_SCALAR
/// In every block of 4 f32: the sums of that block in a, b, c and e.
template <class D, class V = hn::VFromD<D>>
HWY_INLINE V sum_blocks(D d, V a, V b, V c, V e) {
  const hn::Repartition<double, D> pairs;  // of f32, only moved
  const V ab = hn::Add(hn::InterleaveLower(d, a, b), hn::InterleaveUpper(d, a, b));
  const V ce = hn::Add(hn::InterleaveLower(d, c, e), hn::InterleaveUpper(d, c, e));
  const auto x = hn::BitCast(pairs, ab), y = hn::BitCast(pairs, ce);
  return hn::Add(hn::BitCast(d, hn::InterleaveLower(pairs, x, y)),
                 hn::BitCast(d, hn::InterleaveUpper(pairs, x, y)));
}
#endif

/// sums[i] = factor times the sum of the lanes of vectors[i], i < 8; d has at most 8 lanes.
template <class D, typename Sum>
HWY_INLINE void sum_lanes_of_8(D d, const hn::VFromD<D>* vectors, Sum factor, Sum* sums) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (std::is_same_v<Sum, float>) {
    const auto low = sum_blocks(d, vectors[0], vectors[1], vectors[2], vectors[3]),
               high = sum_blocks(d, vectors[4], vectors[5], vectors[6], vectors[7]);
    const auto scale = hn::Set(d, factor);
    if constexpr (hn::MaxLanes(d) == 8) {
      const auto all =
          hn::Add(hn::ConcatLowerLower(d, high, low), hn::ConcatUpperUpper(d, high, low));
      hn::StoreU(hn::Mul(all, scale), d, sums);
    } else {
      hn::StoreU(hn::Mul(low, scale), d, sums);
      hn::StoreU(hn::Mul(high, scale), d, sums + 4);
    }
    return;
  }
#endif
  for (int64_t i = 0; i < 8; ++i) sums[i] = hn::GetLane(hn::SumOfLanes(d, vectors[i])) * factor;
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
