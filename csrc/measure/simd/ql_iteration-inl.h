// Eigenvalues of interleaved tridiagonal matrices. Compiled once an instruction set.
#if defined(HEADSCOPE_QL_ITERATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_QL_ITERATION_INL_H_
#undef HEADSCOPE_QL_ITERATION_INL_H_
#else
#define HEADSCOPE_QL_ITERATION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "csrc/measure/simd/interleaved-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {
namespace {

/// QL without square roots (Pal, Walker and Kahan; LAPACK's sterf) on G groups in lockstep. Every
/// lane works on its own rows top..n-1; what lies above is final and is kept. A solved lane has top
/// n.
template <size_t G>
class QlIteration {
 public:
  /// rounding: of the arithmetic that the matrices come from, relative to their norm.
  QlIteration(const Column<double>* diagonal, const Column<double>* squares, size_t n,
              double rounding)
      : diagonal_(diagonal),
        squares_(squares),
        last_(static_cast<ptrdiff_t>(n) - 1),
        rounding_(rounding) {}

  /// Lanes of group g that are to be left alone.
  void skip(size_t g, hn::Mask<Tag<double>> lanes) { top_[g] = hn::IfThenElseZero(lanes, end()); }

  /// Masks of the lanes that are solved.
  void run(int64_t max_sweeps, hn::Mask<Tag<double>>* solved) {
    for (size_t g = 0; g < G; ++g) {
      // To drop an entry moves no eigenvalue by more than the entry.
      auto largest = hn::Zero(d_);
      for (ptrdiff_t i = 0; i <= last_; ++i) {
        const auto a = diagonal_[g].get(i);
        largest = hn::Max(largest, hn::Mul(a, a));
        if (i < last_) largest = hn::Max(largest, squares_[g].get(i));
      }
      // Nor is there anything below the rounding of the sweeps: they would never end.
      const double negligible = std::max(rounding_ / 8, std::numeric_limits<double>::epsilon() / 2);
      squares_[g].set(last_, hn::Zero(d_));  // the last row has nothing below it
      negligible_[g] = hn::Mul(largest, hn::Set(d_, negligible * negligible));
    }
    for (int64_t sweep = 0;; ++sweep) {
      auto low = top_[0], high = top_[0];
      for (size_t g = 0; g < G; ++g) {
        deflate(g);
        low = g == 0 ? top_[g] : hn::Min(low, top_[g]);
        high = g == 0 ? top_[g] : hn::Max(high, top_[g]);
      }
      const auto first = static_cast<ptrdiff_t>(hn::GetLane(hn::MinOfLanes(d_, low)));
      const auto common = static_cast<ptrdiff_t>(hn::GetLane(hn::MaxOfLanes(d_, high)));
      if (first > last_ || sweep == max_sweeps) break;
      this->sweep(first, common);
    }
    for (size_t g = 0; g < G; ++g) solved[g] = hn::Ge(top_[g], end());
  }

 private:
  Vec<double> end() const { return hn::Set(d_, static_cast<double>(last_ + 1)); }

  /// The lanes' values of a column at their own tops.
  Vec<double> at_top(const Column<double>& column, size_t g, ptrdiff_t below) const {
    const hn::RebindToSigned<Tag<double>> di;
    using Int = hn::TFromD<decltype(di)>;
    const auto index =
        hn::Add(hn::Mul(hn::ConvertTo(di, top_[g]), hn::Set(di, Int{kLanes<double>})),
                hn::Iota(di, Int{0}));
    return hn::GatherIndex(d_, column.data() + below * static_cast<ptrdiff_t>(kLanes<double>),
                           index);
  }

  /// Moves tops past what is solved and chooses Wilkinson's shifts.
  void deflate(size_t g) {
    auto square = at_top(squares_[g], g, 0);
    for (;;) {
      const auto moves = hn::And(hn::Le(square, negligible_[g]), hn::Lt(top_[g], end()));
      if (hn::AllFalse(d_, moves)) break;
      top_[g] = hn::Add(top_[g], hn::IfThenElseZero(moves, hn::Set(d_, 1.0)));
      square = at_top(squares_[g], g, 0);
    }
    const auto a = at_top(diagonal_[g], g, 0), b = at_top(diagonal_[g], g, 1);
    const auto root = hn::Sqrt(square);
    const auto half_gap =
        hn::Div(hn::Sub(b, a),
                hn::Max(hn::Add(root, root), hn::Set(d_, std::numeric_limits<double>::min())));
    const auto radius = hn::Sqrt(hn::MulAdd(half_gap, half_gap, hn::Set(d_, 1.0)));
    shift_[g] = hn::Sub(a, hn::Div(root, hn::Add(half_gap, hn::CopySign(radius, half_gap))));
  }

  HWY_INLINE Vec<double> away_from_zero(Vec<double> x) const {
    return hn::CopySignToAbs(hn::Max(hn::Abs(x), hn::Set(d_, kNothing<double>)), x);
  }

  /// Rotates row i of group g into row i + 1. `all`: row i is at work in every lane.
  template <bool all>
  HWY_INLINE void rotate(size_t g, ptrdiff_t i) {
    auto square = squares_[g].get(i), a = diagonal_[g].get(i);
    const auto shift = shift_[g], before = gamma_[g], p = p_[g];
    if constexpr (!all) {
      // At i = top - 1 nothing is left to rotate with: diagonal[top] becomes gamma + shift.
      const auto active = hn::Ge(hn::Set(d_, static_cast<double>(i)), top_[g]);
      square = hn::IfThenElseZero(active, square);
      a = hn::IfThenElse(active, a, shift);
    }
    const auto r = hn::Add(p, square);
    // One division for all three of c = p / r, s = square / r and 1 / c: 7e-43 < p, r < 1e53.
    const auto inverse = hn::Div(hn::Set(d_, 1.0), hn::Mul(p, r));
    const auto p_inverse = hn::Mul(p, inverse);
    auto square_below = hn::Mul(s_[g], r);
    s_[g] = hn::Mul(square, p_inverse);
    const auto gamma = away_from_zero(
        hn::MulSub(hn::Mul(p, p_inverse), hn::Sub(a, shift), hn::Mul(s_[g], before)));
    auto diagonal_below = hn::Add(before, hn::Sub(a, gamma));
    gamma_[g] = gamma;
    p_[g] = hn::Mul(hn::Mul(gamma, gamma), hn::Mul(r, hn::Mul(r, inverse)));
    if constexpr (!all) {
      const auto kept = hn::Lt(hn::Set(d_, static_cast<double>(i + 1)), top_[g]);
      square_below = hn::IfThenElse(kept, squares_[g].get(i + 1), square_below);
      diagonal_below = hn::IfThenElse(kept, diagonal_[g].get(i + 1), diagonal_below);
    }
    squares_[g].set(i + 1, square_below);
    diagonal_[g].set(i + 1, diagonal_below);
  }

  /// Rows last..first - 1; down to row `common` every lane is at work.
  void sweep(ptrdiff_t first, ptrdiff_t common) {
    for (size_t g = 0; g < G; ++g) {
      s_[g] = hn::Zero(d_);
      gamma_[g] = away_from_zero(hn::Sub(diagonal_[g].get(last_), shift_[g]));
      p_[g] = hn::Mul(gamma_[g], gamma_[g]);
    }
    ptrdiff_t i = last_ - 1;
    for (; i >= common; --i) {
      for (size_t g = 0; g < G; ++g) rotate<true>(g, i);
    }
    for (; i >= first - 1; --i) {
      for (size_t g = 0; g < G; ++g) rotate<false>(g, i);
    }
  }

  const Tag<double> d_;
  const Column<double>* diagonal_;
  const Column<double>* squares_;
  const ptrdiff_t last_;
  const double rounding_;
  Vec<double> top_[G], shift_[G], negligible_[G], s_[G], gamma_[G], p_[G];
};

/// Batcher's merge exchange (Knuth, vol. 3, 5.2.2 M): the same comparisons whatever the values, so
/// lanes sort side by side.
inline void sort_lanes(const Column<double>& values, size_t n) {
  size_t half = 1;
  while (2 * half < n) half *= 2;
  for (size_t p = half; p > 0; p /= 2) {
    size_t distance = p, parity = 0;
    for (size_t q = half;; q /= 2) {
      for (size_t i = 0; i + distance < n; ++i) {
        if ((i & p) != parity) continue;
        const auto a = values.get(static_cast<ptrdiff_t>(i)),
                   b = values.get(static_cast<ptrdiff_t>(i + distance));
        values.set(static_cast<ptrdiff_t>(i), hn::Min(a, b));
        values.set(static_cast<ptrdiff_t>(i + distance), hn::Max(a, b));
      }
      if (q == p) break;
      distance = q - p;
      parity = p;
    }
  }
}

}  // namespace
}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
