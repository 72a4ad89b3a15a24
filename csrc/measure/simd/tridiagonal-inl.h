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
#include <type_traits>
#include <utility>

#include "csrc/measure/simd/interleaved-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {
namespace {

// Groups of lanes whose QL sweeps are interleaved, to hide the latency of the divisions.
constexpr size_t kGroups = 6;

// Reflectors that are applied in one pass over the matrix; and rows that a pass takes side by side,
// which share the loads of the vectors beside them, while it applies them and while it applies
// none. All as the registers allow: 32 or 16.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr size_t kDelayed = 2;
constexpr ptrdiff_t kRowsApplying = 4, kRowsReading = 4;
#else
constexpr size_t kDelayed = 1;
constexpr ptrdiff_t kRowsApplying = 2, kRowsReading = 4;
#endif

/// Memory of one call, carved from one allocation.
template <typename T>
class Scratch {
 public:
  explicit Scratch(size_t n)
      // A row is loaded in blocks of up to 16 bytes, which may reach past the triangle's end.
      : packed_size_((n * (n + 1) / 2 + 16 / sizeof(T)) * kLanes<T>),
        memory_(hwy::AllocateAligned<T>(packed_size_ + kColumns * Column<T>::size(n))),
        ql_memory_(hwy::AllocateAligned<double>(2 * kGroups * Column<double>::size(n))) {
    if (memory_ == nullptr || ql_memory_ == nullptr) throw std::bad_alloc();
    T* next = memory_.get() + packed_size_;
    const auto take = [&] {
      T* memory = next;
      next += Column<T>::size(n);
      return Column<T>(memory);
    };
    for (size_t p = 0; p <= kDelayed; ++p) {
      v[p] = take();
      w[p] = take();
    }
    product = take();
    for (size_t g = 0; g < kGroups; ++g) {
      double* memory = ql_memory_.get() + 2 * g * Column<double>::size(n);
      diagonal[g] = Column<double>(memory);
      squares[g] = Column<double>(memory + Column<double>::size(n));
    }
  }
  T* packed() const { return memory_.get(); }

  // A - sum (v w' + w v') over the reflectors that wait to be applied is what A stands for; one
  // place more is for the reflector in the making.
  Column<T> v[kDelayed + 1], w[kDelayed + 1];
  Column<T> product;
  Column<double> diagonal[kGroups];  ///< of the tridiagonal matrices
  Column<double> squares[kGroups];   ///< of the entries (i, i + 1) beside it

 private:
  static constexpr size_t kColumns = 2 * (kDelayed + 1) + 1;
  size_t packed_size_;
  hwy::AlignedFreeUniquePtr<T[]> memory_;
  hwy::AlignedFreeUniquePtr<double[]> ql_memory_;
};

/// a - v w' - w v' of one entry.
template <class V>
HWY_INLINE V updated(V a, V v_row, V w_row, V v_column, V w_column) {
  return hn::NegMulAdd(v_row, w_column, hn::NegMulAdd(w_row, v_column, a));
}

/// Rows r to r + kRows of A become A - sum (v w' + w v') over kApplied reflectors, and add their
/// part of A x to the product.
template <size_t kApplied, ptrdiff_t kRows, typename T>
HWY_INLINE void pass_rows(const Scratch<T>& s, const Column<T>& x_column, ptrdiff_t r) {
  const Tag<T> d;
  constexpr ptrdiff_t kStep = static_cast<ptrdiff_t>(kLanes<T>);
  constexpr size_t kPairs = kApplied == 0 ? 1 : kApplied;
  const Column<T> product = s.product;
  Column<T> v_column[kPairs], w_column[kPairs];
  T* rows[kRows];
  Vec<T> v[kPairs][kRows], w[kPairs][kRows], x[kRows], y[kRows];
  for (size_t p = 0; p < kApplied; ++p) {
    v_column[p] = s.v[p];
    w_column[p] = s.w[p];
  }
  for (ptrdiff_t j = 0; j < kRows; ++j) {
    rows[j] = s.packed() + (r + j) * (r + j + 1) / 2 * kStep;
    for (size_t p = 0; p < kApplied; ++p) {
      v[p][j] = v_column[p].get(r + j);
      w[p][j] = w_column[p].get(r + j);
    }
    x[j] = x_column.get(r + j);
    y[j] = hn::Zero(d);
  }
  for (ptrdiff_t k = 0; k < r; ++k) {
    Vec<T> vk[kPairs], wk[kPairs];
    for (size_t p = 0; p < kApplied; ++p) {
      vk[p] = v_column[p].get(k);
      wk[p] = w_column[p].get(k);
    }
    const auto xk = x_column.get(k);
    auto yk = product.get(k);
    for (ptrdiff_t j = 0; j < kRows; ++j) {
      auto a = hn::Load(d, rows[j] + k * kStep);
      for (size_t p = 0; p < kApplied; ++p) a = updated(a, v[p][j], w[p][j], vk[p], wk[p]);
      if constexpr (kApplied > 0) hn::Store(a, d, rows[j] + k * kStep);
      y[j] = hn::MulAdd(a, xk, y[j]);
      yk = hn::MulAdd(a, x[j], yk);
    }
    product.set(k, yk);
  }
  for (ptrdiff_t j = 0; j < kRows; ++j) {
    for (ptrdiff_t i = 0; i <= j; ++i) {
      auto a = hn::Load(d, rows[j] + (r + i) * kStep);
      for (size_t p = 0; p < kApplied; ++p) a = updated(a, v[p][j], w[p][j], v[p][i], w[p][i]);
      if constexpr (kApplied > 0) hn::Store(a, d, rows[j] + (r + i) * kStep);
      y[j] = hn::MulAdd(a, x[i], y[j]);
      if (i < j) y[i] = hn::MulAdd(a, x[j], y[i]);
    }
  }
  for (ptrdiff_t j = 0; j < kRows; ++j) product.set(r + j, y[j]);
}

/// The product becomes that of the leading `size` rows of A, to which kApplied reflectors are
/// applied, with x: one pass over A.
template <size_t kApplied, typename T>
HWY_INLINE void pass(const Scratch<T>& s, const Column<T>& x, ptrdiff_t size) {
  constexpr ptrdiff_t kRows = kApplied == 0 ? kRowsReading : kRowsApplying;
  ptrdiff_t r = 0;
  for (; r < size % kRows; ++r) pass_rows<kApplied, 1>(s, x, r);
  for (; r < size; r += kRows) pass_rows<kApplied, kRows>(s, x, r);
}

template <typename T>
HWY_INLINE Vec<T> dot(const Column<T>& x, const Column<T>& y, ptrdiff_t size) {
  const Tag<T> d;
  auto even = hn::Zero(d), odd = hn::Zero(d);
  ptrdiff_t k = 0;
  for (; k + 1 < size; k += 2) {
    even = hn::MulAdd(x.get(k), y.get(k), even);
    odd = hn::MulAdd(x.get(k + 1), y.get(k + 1), odd);
  }
  if (k < size) even = hn::MulAdd(x.get(k), y.get(k), even);
  return hn::Add(even, odd);
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

/// Row i of A with kWaiting reflectors applied to it.
template <size_t kWaiting, typename T>
class AppliedRow {
 public:
  AppliedRow(const Scratch<T>& s, ptrdiff_t i)
      : s_(s), row_(s.packed() + i * (i + 1) / 2 * static_cast<ptrdiff_t>(kLanes<T>)) {
    for (size_t p = 0; p < kWaiting; ++p) {
      v_[p] = s.v[p].get(i);
      w_[p] = s.w[p].get(i);
    }
  }
  HWY_INLINE Vec<T> get(ptrdiff_t k) const {
    auto a = hn::Load(Tag<T>(), row_ + k * static_cast<ptrdiff_t>(kLanes<T>));
    for (size_t p = 0; p < kWaiting; ++p)
      a = updated(a, v_[p], w_[p], s_.v[p].get(k), s_.w[p].get(k));
    return a;
  }

 private:
  const Scratch<T>& s_;
  const T* row_;
  Vec<T> v_[kWaiting + 1], w_[kWaiting + 1];
};

/// Makes the reflector I - beta x x' of row i >= 2, while kWaiting others wait, and its pair v = x,
/// w = beta (A x - beta / 2 (x' A x) x). The last that may wait has all before it applied.
template <size_t kWaiting, typename T>
void reduce_row(Scratch<T>& s, ptrdiff_t i, const Column<double>* diagonal,
                const Column<double>* squares) {
  const Tag<T> d;
  const Column<T> x = s.v[kWaiting], w = s.w[kWaiting], product = s.product;
  const AppliedRow<kWaiting, T> row(s, i);
  widen<T>(row.get(i), i, diagonal);
  auto sum = hn::Zero(d), odd_sum = hn::Zero(d);
  ptrdiff_t k = 0;
  for (; k + 1 < i - 1; k += 2) {
    const auto a = row.get(k), b = row.get(k + 1);
    x.set(k, a);
    x.set(k + 1, b);
    sum = hn::MulAdd(a, a, sum);
    odd_sum = hn::MulAdd(b, b, odd_sum);
  }
  if (k < i - 1) {
    const auto a = row.get(k);
    x.set(k, a);
    sum = hn::MulAdd(a, a, sum);
  }
  sum = hn::Add(sum, odd_sum);
  const auto beside = row.get(i - 1);
  const auto square = hn::MulAdd(beside, beside, sum);
  const auto last = hn::Add(beside, hn::CopySign(hn::Sqrt(square), beside));
  x.set(i - 1, last);
  const auto length = hn::MulAdd(last, last, sum);  // x' x
  // A row of nothing is dropped: dividing by its length would blow up its rounding errors.
  const auto counts = hn::Gt(length, hn::Set(d, kNothing<T> * kNothing<T>));
  widen<T>(hn::IfThenElseZero(counts, square), i - 1, squares);
  const auto beta = hn::IfThenElseZero(counts, hn::Div(hn::Set(d, T{2}), length));
  if constexpr (kWaiting == kDelayed) {
    pass<kDelayed>(s, x, i);
  } else {
    pass<0>(s, x, i);
    for (size_t p = 0; p < kWaiting; ++p) {
      const auto along_v = dot(s.w[p], x, i), along_w = dot(s.v[p], x, i);
      for (k = 0; k < i; ++k)
        product.set(k, updated(product.get(k), along_v, along_w, s.w[p].get(k), s.v[p].get(k)));
    }
  }
  // beta^2 alone may overflow.
  const auto half = hn::Mul(beta, hn::Mul(beta, hn::Mul(hn::Set(d, T{0.5}), dot(product, x, i))));
  for (k = 0; k < i; ++k) w.set(k, hn::NegMulAdd(half, x.get(k), hn::Mul(beta, product.get(k))));
  if constexpr (kWaiting == kDelayed) {
    std::swap(s.v[0], s.v[kDelayed]);
    std::swap(s.w[0], s.w[kDelayed]);
  }
}

/// The leading 2 x 2 entries, which need no reflector.
template <size_t kWaiting, typename T>
void finish_rows(const Scratch<T>& s, ptrdiff_t n, const Column<double>* diagonal,
                 const Column<double>* squares) {
  widen<T>(AppliedRow<kWaiting, T>(s, 0).get(0), 0, diagonal);
  if (n == 1) return;
  const AppliedRow<kWaiting, T> row(s, 1);
  widen<T>(row.get(1), 1, diagonal);
  widen<T>(hn::Mul(row.get(0), row.get(0)), 0, squares);
}

/// Calls visit with `waiting` as a type.
template <typename Visit>
HWY_INLINE void visit_waiting(size_t waiting, Visit&& visit) {
  static_assert(kDelayed <= 2);
  if (waiting == 0) return visit(std::integral_constant<size_t, 0>());
  if (waiting < kDelayed) return visit(std::integral_constant<size_t, kDelayed - 1>());
  visit(std::integral_constant<size_t, kDelayed>());
}

/// Householder's reduction from the last row up.
template <typename T>
void tridiagonalise(Scratch<T>& s, size_t order, const Column<double>* diagonal,
                    const Column<double>* squares) {
  const auto n = static_cast<ptrdiff_t>(order);
  size_t waiting = 0;
  for (ptrdiff_t i = n - 1; i > 1; --i) {
    visit_waiting(waiting, [&](auto known) { reduce_row<known>(s, i, diagonal, squares); });
    waiting = waiting == kDelayed ? 1 : waiting + 1;
  }
  visit_waiting(waiting, [&](auto known) { finish_rows<known>(s, n, diagonal, squares); });
}

}  // namespace
}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
