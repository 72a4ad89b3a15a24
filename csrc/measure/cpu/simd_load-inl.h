// Widening loads, once for each SIMD target (hence no #pragma once: the guard toggles).
#if defined(HEADSCOPE_MEASURE_CPU_SIMD_LOAD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_MEASURE_CPU_SIMD_LOAD_INL_H_
#undef HEADSCOPE_MEASURE_CPU_SIMD_LOAD_INL_H_
#else
#define HEADSCOPE_MEASURE_CPU_SIMD_LOAD_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <type_traits>

#include "csrc/measure/cpu/element.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Element types that a vector of Sum is loaded from in one step.
template <typename In, typename Sum>
inline constexpr bool kLoadsWide = std::is_same_v<In, Sum> ||
                                   (std::is_same_v<Sum, float> &&
                                    (std::is_same_v<In, hwy::bfloat16_t> ||
                                     std::is_same_v<In, hwy::float16_t>));

template <class D, typename In>
HWY_INLINE hn::VFromD<D> load_widened(D d, const In* source) {
  if constexpr (std::is_same_v<In, hn::TFromD<D>>) {
    return hn::LoadU(d, source);
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

}  // namespace headscope::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
