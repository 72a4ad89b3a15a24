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

/// Rows updated side by side, which share the loads of the vectors beside them.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr ptrdiff_t kSideBySide = 4;
#else
constexpr ptrdiff_t kSideBySide = 2;
#endif

/// update_and_multiply of the kRows rows from r on.
template <ptrdiff_t kRows, typename T>
HWY_INLINE void update_rows(const Scratch<T>& s, ptrdiff_t r) {
  const Tag<T> d;
  constexpr ptrdiff_t kStep = static_cast<ptrdiff_t>(kLanes<T>);
  const auto columns_v = s.v, columns_w = s.w, columns_x = s.next_v, product = s.product;
  T* rows[kRows];
  Vec<T> v[kRows], w[kRows], x[kRows], y[kRows];
  for (ptrdiff_t j = 0; j < kRows; ++j) {
    rows[j] = s.packed() + (r + j) * (r + j + 1) / 2 * kStep;
    v[j] = columns_v.get(r + j);
    w[j] = columns_w.get(r + j);
    x[j] = columns_x.get(r + j);
    y[j] = hn::Zero(d);
  }
  for (ptrdiff_t k = 0; k < r; ++k) {
    const auto vk = columns_v.get(k), wk = columns_w.get(k), xk = columns_x.get(k);
    auto yk = product.get(k);
    for (ptrdiff_t j = 0; j < kRows; ++j) {
      const auto a = updated(hn::Load(d, rows[j] + k * kStep), v[j], w[j], vk, wk);
      hn::Store(a, d, rows[j] + k * kStep);
      y[j] = hn::MulAdd(a, xk, y[j]);
      yk = hn::MulAdd(a, x[j], yk);
    }
    product.set(k, yk);
  }
  for (ptrdiff_t j = 0; j < kRows; ++j) {
    for (ptrdiff_t i = 0; i <= j; ++i) {
      const auto a = updated(hn::Load(d, rows[j] + (r + i) * kStep), v[j], w[j], v[i], w[i]);
      hn::Store(a, d, rows[j] + (r + i) * kStep);
      y[j] = hn::MulAdd(a, x[i], y[j]);
      if (i < j) y[i] = hn::MulAdd(a, x[j], y[i]);
    }
  }
  for (ptrdiff_t j = 0; j < kRows; ++j) product.set(r + j, y[j]);
}

/// The leading `size` rows of A become A - v w' - w v', and product = A next_v: one pass over A.
template <typename T>
HWY_INLINE void update_and_multiply(const Scratch<T>& s, ptrdiff_t size) {
  ptrdiff_t r = 0;
  for (; r < size % kSideBySide; ++r) update_rows<1>(s, r);
  for (; r < size; r += kSideBySide) update_rows<kSideBySide>(s, r);
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
