// Widening loads, once for each SIMD target (hence no #pragma once: the guard toggles).
#if defined(HEADSCOPE_MEASURE_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_MEASURE_SIMD_LOAD_INL_H_
#undef HEADSCOPE_MEASURE_SIMD_LOAD_INL_H_
#else
#define HEADSCOPE_MEASURE_SIMD_LOAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "csrc/measure/simd/element.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Element types that a vector of Sum is loaded from in one step.
template <typename In, typename Sum>
inline constexpr bool kLoadsWide = std::is_same_v<In, Sum> ||
                                   (std::is_same_v<Sum, float> &&
                                    (std::is_same_v<In, hwy::bfloat16_t> ||
                                     std::is_same_v<In, hwy::float16_t>));

/// f16 that are not finite as the f32 of their kind. Highway widens them to 65536 and beyond where
/// it has no instruction for it.
template <class D>
HWY_INLINE hn::VFromD<D> widened_f16(D d, const hwy::float16_t* source) {
  const auto wide = hn::PromoteTo(d, hn::LoadU(hn::Rebind<hwy::float16_t, D>(), source));
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  return wide;
#else
  const hn::RebindToUnsigned<D> bits_of;
  const hn::Rebind<uint16_t, D> half;
  const auto bits =
      hn::PromoteTo(bits_of, hn::LoadU(half, reinterpret_cast<const uint16_t*>(source)));
  const auto exponent = hn::Set(bits_of, 0x7C00u);
  const auto special = hn::Or(hn::Set(bits_of, 0x7F800000u),
                              hn::Or(hn::ShiftLeft<16>(hn::And(bits, hn::Set(bits_of, 0x8000u))),
                                     hn::ShiftLeft<13>(hn::And(bits, hn::Set(bits_of, 0x03FFu)))));
  return hn::IfThenElse(hn::RebindMask(d, hn::Eq(hn::And(bits, exponent), exponent)),
                        hn::BitCast(d, special), wide);
#endif
}

template <class D, typename In>
HWY_INLINE hn::VFromD<D> load_widened(D d, const In* source) {
  if constexpr (std::is_same_v<In, hn::TFromD<D>>) {
    return hn::LoadU(d, source);
  } else if constexpr (std::is_same_v<In, hwy::float16_t>) {
    return widened_f16(d, source);
  } else {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<In, D>(), source));
  }
}

/// One element in the type that sums are kept in.
template <typename Sum, typename In>
HWY_INLINE Sum widen_one(In value) {
  if constexpr (std::is_same_v<In, hwy::float16_t>) {
    const hn::FixedTag<float, 1> d;
    return static_cast<Sum>(hn::GetLane(load_widened(d, &value)));
  } else {
    return to_sum<Sum>(value);
  }
}

/// target[i] = source[i * stride] for i < count.
template <typename Sum, typename In>
HWY_INLINE void widen_strided(const In* source, int64_t stride, int64_t count, Sum* target) {
  int64_t i = 0;
  if constexpr (kLoadsWide<In, Sum>) {
    const hn::ScalableTag<Sum> d;
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    if (stride == 1) {
      for (; i + lanes <= count; i += lanes) hn::StoreU(load_widened(d, source + i), d, target + i);
    }
  }
  for (; i < count; ++i) target[i] = widen_one<Sum>(source[i * stride]);
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
