// Many small problems side by side, one a SIMD lane. Compiled once an instruction set.
#if defined(HEADSCOPE_INTERLEAVED_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_INTERLEAVED_INL_H_
#undef HEADSCOPE_INTERLEAVED_INL_H_
#else
#define HEADSCOPE_INTERLEAVED_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <typename T>
using Tag = hn::ScalableTag<T>;
template <typename T>
using Vec = hn::Vec<Tag<T>>;
template <typename T>
constexpr size_t kLanes = hn::MaxLanes(Tag<T>());

// Entries are scaled to at most 1 in magnitude, the norm lies in [1/2, n]. What is below kNothing
// is lost in the rounding of T by far; its square and the inverse of that are normal numbers.
template <typename T>
constexpr T kNothing = std::numeric_limits<T>::epsilon() / (1 << 18);

/// A vector of lanes for each of the positions -1..n + 1: those outside the matrix are read and
/// written by lanes that have no work, and mean nothing.
template <typename T>
class Column {
 public:
  static size_t size(size_t n) { return (n + 3) * kLanes<T>; }
  Column() = default;
  explicit Column(T* memory) : first_(memory + kLanes<T>) {}
  HWY_INLINE Vec<T> get(ptrdiff_t i) const {
    return hn::Load(Tag<T>(), first_ + i * static_cast<ptrdiff_t>(kLanes<T>));
  }
  HWY_INLINE void set(ptrdiff_t i, Vec<T> value) const {
    hn::Store(value, Tag<T>(), first_ + i * static_cast<ptrdiff_t>(kLanes<T>));
  }
  T* data() const { return first_; }

 private:
  T* first_ = nullptr;
};

}  // namespace
}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
