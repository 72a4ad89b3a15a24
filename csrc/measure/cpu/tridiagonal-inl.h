// Householder's reduction of interleaved symmetric matrices to tridiagonal ones. Compiled once an
// instruction set.
#if defined(HEADSCOPE_TRIDIAGONAL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_TRIDIAGONAL_INL_H_
#undef HEADSCOPE_TRIDIAGONAL_INL_H_
#else
#define HEADSCOPE_TRIDIAGONAL_INL_H_
#endif

#include <hwy/aligned_allocator.h>
#include <hwy/highway.h>

#include <cstddef>
#include <new>
#include <utility>

#include "csrc/measure/cpu/interleaved-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::cpu::HWY_NAMESPACE {
namespace {

// Groups of lanes whose QL sweeps are interleaved, to hide the latency of the divisions.
constexpr size_t kGroups = 6;

/// Memory of one call, carved from one allocation.
template <typename T>
class Scratch {
 public:
  explicit Scratch(size_t n)
      // A row is loaded in blocks of up to 16 bytes, which may reach past the triangle's end.
      : packed_size_((n * (n + 1) / 2 + 16 / sizeof(T)) * kLanes<T>),
        memory_(hwy::AllocateAligned<T>(packed_size_ + 5 * Column<T>::size(n))),
        ql_memory_(hwy::AllocateAligned<double>(2 * kGroups * Column<double>::size(n))) {
    if (memory_ == nullptr || ql_memory_ == nullptr) throw std::bad_alloc();
    T* next = memory_.get() + packed_size_;
    for (Column<T>* column : {&v, &w, &next_v, &next_w, &product}) {
      *column = Column<T>(next);
      next += Column<T>::size(n);
    }
    for (size_t g = 0; g < kGroups; ++g) {
      double* memory = ql_memory_.get() + 2 * g * Column<double>::size(n);
      diagonal[g] = Column<double>(memory);
      squares[g] = Column<double>(memory + Column<double>::size(n));
    }
  }
  T* packed() const { return memory_.get(); }

  Column<T> v, w, next_v, next_w, product;
  Column<double> diagonal[kGroups];  ///< of the tridiagonal matrices
  Column<double> squares[kGroups];   ///< of the entries (i, i + 1) beside it

 private:
  size_t packed_size_;
  hwy::AlignedFreeUniquePtr<T[]> memory_;
  hwy::AlignedFreeUniquePtr<double[]> ql_memory_;
};

/// a - v w' - w v' of one entry.
template <class V>
HWY_INLINE V updated(V a, V v_row, V w_row, V v_column, V w_column) {
  return hn::NegMulAdd(v_row, w_column, hn::NegMulAdd(w_row, v_column, a));
}

/// The leading `size` rows of A become A - v w' - w v', and product = A next_v: one pass over A.
/// Two rows at a time share the loads of the vectors.
template <typename T>
HWY_INLINE void update_and_multiply(const Scratch<T>& s, ptrdiff_t size) {
  const Tag<T> d;
  constexpr ptrdiff_t kStep = static_cast<ptrdiff_t>(kLanes<T>);
  const auto v = s.v, w = s.w, x = s.next_v, y = s.product;
  T* row = s.packed();
  ptrdiff_t r = 0;
  if (size % 2 == 1) {
    const auto a = updated(hn::Load(d, row), v.get(0), w.get(0), v.get(0), w.get(0));
    hn::Store(a, d, row);
    y.set(0, hn::Mul(a, x.get(0)));
    row += kStep;
    r = 1;
  }
  for (; r < size; r += 2) {
    T* below = row + (r + 1) * kStep;
    const auto v0 = v.get(r), w0 = w.get(r), x0 = x.get(r);
    const auto v1 = v.get(r + 1), w1 = w.get(r + 1), x1 = x.get(r + 1);
    auto y0 = hn::Zero(d), y1 = hn::Zero(d);
    for (ptrdiff_t k = 0; k < r; ++k) {
      const auto vk = v.get(k), wk = w.get(k), xk = x.get(k);
      const auto a = updated(hn::Load(d, row + k * kStep), v0, w0, vk, wk);
      const auto b = updated(hn::Load(d, below + k * kStep), v1, w1, vk, wk);
      hn::Store(a, d, row + k * kStep);
      hn::Store(b, d, below + k * kStep);
      y0 = hn::MulAdd(a, xk, y0);
      y1 = hn::MulAdd(b, xk, y1);
      y.set(k, hn::MulAdd(b, x1, hn::MulAdd(a, x0, y.get(k))));
    }
    const auto a = updated(hn::Load(d, row + r * kStep), v0, w0, v0, w0);
    const auto b = updated(hn::Load(d, below + r * kStep), v1, w1, v0, w0);
    const auto c = updated(hn::Load(d, below + (r + 1) * kStep), v1, w1, v1, w1);
    hn::Store(a, d, row + r * kStep);
    hn::Store(b, d, below + r * kStep);
    hn::Store(c, d, below + (r + 1) * kStep);
    y.set(r, hn::MulAdd(a, x0, hn::MulAdd(b, x1, y0)));
    y.set(r + 1, hn::MulAdd(b, x0, hn::MulAdd(c, x1, y1)));
    row = below + (r + 2) * kStep;
  }
}

/// Lanes of T spread over as many columns of double as hold them.
template <typename T>
HWY_INLINE void widen(Vec<T> value, ptrdiff_t i, const Column<double>* columns) {
  alignas(64) T lanes[kLanes<T>];
  hn::Store(value, Tag<T>(), lanes);
  for (size_t m = 0; m < kLanes<T>; ++m) {
    double* column = columns[m / kLanes<double>].data();
    column[i * static_cast<ptrdiff_t>(kLanes<double>) +
           static_cast<ptrdiff_t>(m % kLanes<double>)] = lanes[m];
  }
}

/// Householder's reduction from the last row up: the reflector of row i is I - beta x x'.
template <typename T>
void tridiagonalise(Scratch<T>& s, size_t order, const Column<double>* diagonal,
                    const Column<double>* squares) {
  const Tag<T> d;
  const auto n = static_cast<ptrdiff_t>(order);
  for (ptrdiff_t k = 0; k < n; ++k) {
    s.v.set(k, hn::Zero(d));
    s.w.set(k, hn::Zero(d));
  }
  for (ptrdiff_t i = n - 1; i > 0; --i) {
    const T* row = s.packed() + i * (i + 1) / 2 * static_cast<ptrdiff_t>(kLanes<T>);
    const auto v_row = s.v.get(i), w_row = s.w.get(i);
    const auto entry = [&](ptrdiff_t k) HWY_ATTR {
      const auto a = hn::Load(d, row + k * static_cast<ptrdiff_t>(kLanes<T>));
      return updated(a, v_row, w_row, s.v.get(k), s.w.get(k));
    };
    widen<T>(entry(i), i, diagonal);
    auto sum = hn::Zero(d), odd_sum = hn::Zero(d);
    ptrdiff_t k = 0;
    for (; k + 1 < i - 1; k += 2) {
      const auto a = entry(k), b = entry(k + 1);
      s.next_v.set(k, a);
      s.next_v.set(k + 1, b);
      sum = hn::MulAdd(a, a, sum);
      odd_sum = hn::MulAdd(b, b, odd_sum);
    }
    if (k < i - 1) {
      const auto a = entry(k);
      s.next_v.set(k, a);
      sum = hn::MulAdd(a, a, sum);
    }
    sum = hn::Add(sum, odd_sum);
    const auto beside = entry(i - 1);
    const auto square = hn::MulAdd(beside, beside, sum);
    if (i == 1) {
      widen<T>(square, 0, squares);
      break;
    }
    const auto x = hn::Add(beside, hn::CopySign(hn::Sqrt(square), beside));
    s.next_v.set(i - 1, x);
    const auto length = hn::MulAdd(x, x, sum);  // x' x
    // A row of nothing is dropped: dividing by its length would blow up its rounding errors.
    const auto counts = hn::Gt(length, hn::Set(d, kNothing<T> * kNothing<T>));
    widen<T>(hn::IfThenElseZero(counts, square), i - 1, squares);
    const auto beta = hn::IfThenElseZero(counts, hn::Div(hn::Set(d, T{2}), length));
    update_and_multiply(s, i);
    auto dot = hn::Zero(d), odd_dot = hn::Zero(d);
    for (k = 0; k + 1 < i; k += 2) {
      dot = hn::MulAdd(s.product.get(k), s.next_v.get(k), dot);
      odd_dot = hn::MulAdd(s.product.get(k + 1), s.next_v.get(k + 1), odd_dot);
    }
    if (k < i) dot = hn::MulAdd(s.product.get(k), s.next_v.get(k), dot);
    // beta^2 alone may overflow.
    const auto half =
        hn::Mul(beta, hn::Mul(beta, hn::Mul(hn::Set(d, T{0.5}), hn::Add(dot, odd_dot))));
    for (k = 0; k < i; ++k) {
      s.next_w.set(k, hn::NegMulAdd(half, s.next_v.get(k), hn::Mul(beta, s.product.get(k))));
    }
    std::swap(s.v, s.next_v);
    std::swap(s.w, s.next_w);
  }
  const auto corner =
      updated(hn::Load(d, s.packed()), s.v.get(0), s.w.get(0), s.v.get(0), s.w.get(0));
  widen<T>(corner, 0, diagonal);
}

}  // namespace
}  // namespace headscope::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
