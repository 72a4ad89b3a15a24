#include "csrc/measure/simd/symmetric_eigenvalues.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

// Vectors are kept in arrays below, which scalable ones cannot be; SSSE3 and AVX3_DL bring nothing
// over their neighbours.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/measure/simd/symmetric_eigenvalues.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h, which compiles this file once an instruction set.
#include <hwy/highway.h>

#include "csrc/measure/simd/ql_iteration-inl.h"
#include "csrc/measure/simd/tridiagonal-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {
namespace {

/// The matrices of a group: one a lane, and the power of two that brings each to at most 1.
template <typename T>
struct Group {
  const T* matrices[kLanes<T>];
  bool finite[kLanes<T>];
  int exponent[kLanes<T>];
  alignas(64) T half_scale[kLanes<T>];        // 2^-exponent may not be a T, but is a product of
  alignas(64) T other_half_scale[kLanes<T>];  // two
};

/// Magnitudes as integers: they compare as numbers do, and Inf and NaN are largest.
template <typename T>
class LargestMagnitude {
 public:
  LargestMagnitude() : most_(hn::Zero(hn::ScalableTag<Int>())) {}
  HWY_INLINE void take(const T* entries, size_t count) {
    const hn::ScalableTag<Int> d;
    size_t i = 0;
    for (; i + kLanes<T> <= count; i += kLanes<T>) {
      const auto bits = hn::BitCast(d, hn::LoadU(Tag<T>(), entries + i));
      most_ = hn::Max(most_, hn::And(bits, hn::Set(d, kMagnitude)));
    }
    for (; i < count; ++i) {
      Int bits;
      hwy::CopyBytes<sizeof(T)>(entries + i, &bits);
      most_of_tails_ = std::max(most_of_tails_, static_cast<Int>(bits & kMagnitude));
    }
  }
  T value() const {
    const Int bits =
        std::max(most_of_tails_, hn::GetLane(hn::MaxOfLanes(hn::ScalableTag<Int>(), most_)));
    T largest;
    hwy::CopyBytes<sizeof(T)>(&bits, &largest);
    return largest;
  }

 private:
  using Int = hwy::MakeSigned<T>;
  static constexpr Int kMagnitude = std::numeric_limits<Int>::max();
  hn::Vec<hn::ScalableTag<Int>> most_;
  Int most_of_tails_ = 0;
};

/// `count` matrices, the last again in the lanes left over.
template <typename T>
Group<T> make_group(const T* matrices, size_t count, size_t n) {
  Group<T> group;
  for (size_t m = 0; m < kLanes<T>; ++m) {
    group.matrices[m] = matrices + std::min(m, count - 1) * n * n;
    LargestMagnitude<T> anywhere, below;
    anywhere.take(group.matrices[m], n * n);
    for (size_t i = 0; i < n; ++i) below.take(group.matrices[m] + i * n, i + 1);
    const T largest = below.value();
    group.finite[m] = std::isfinite(anywhere.value());
    group.exponent[m] = 0;
    if (group.finite[m]) std::frexp(largest, &group.exponent[m]);
    const int half = -group.exponent[m] / 2;
    group.half_scale[m] = std::ldexp(T{1}, half);
    group.other_half_scale[m] = std::ldexp(T{1}, -group.exponent[m] - half);
  }
  return group;
}

/// Transposes a block of vectors of 16 bytes (one lane without SIMD).
template <class D, class V>
HWY_INLINE void transpose(D d, V* rows) {
#if HWY_TARGET == HWY_SCALAR
  (void)d, (void)rows;
#else
  if constexpr (hn::MaxLanes(D()) == 4) {
    const V even = hn::InterleaveLower(d, rows[0], rows[2]),
            odd = hn::InterleaveLower(d, rows[1], rows[3]),
            even_up = hn::InterleaveUpper(d, rows[0], rows[2]),
            odd_up = hn::InterleaveUpper(d, rows[1], rows[3]);
    rows[0] = hn::InterleaveLower(d, even, odd);
    rows[1] = hn::InterleaveUpper(d, even, odd);
    rows[2] = hn::InterleaveLower(d, even_up, odd_up);
    rows[3] = hn::InterleaveUpper(d, even_up, odd_up);
  } else {
    const V first = rows[0];
    rows[0] = hn::InterleaveLower(d, first, rows[1]);
    rows[1] = hn::InterleaveUpper(d, first, rows[1]);
  }
#endif
}

/// Lower triangles row after row, entry (i, j) of every matrix in one vector, scaled.
template <typename T>
void interleave(const Group<T>& group, size_t n, T* packed) {
  const hn::CappedTag<T, 16 / sizeof(T)> block;
  constexpr size_t kBlock = hn::MaxLanes(block);
  for (size_t i = 0; i < n; ++i) {
    T* out = packed + i * (i + 1) / 2 * kLanes<T>;
    size_t j = 0;
    // What lies beyond the diagonal lands in the next row, which overwrites it.
    for (; j <= i && j + kBlock <= n; j += kBlock) {
      for (size_t m = 0; m < kLanes<T>; m += kBlock) {
        const auto scale = hn::Load(block, group.half_scale + m);
        const auto other = hn::Load(block, group.other_half_scale + m);
        hn::Vec<decltype(block)> entries[kBlock];
        for (size_t k = 0; k < kBlock; ++k)
          entries[k] = hn::LoadU(block, group.matrices[m + k] + i * n + j);
        transpose(block, entries);
        for (size_t k = 0; k < kBlock; ++k) {
          hn::Store(hn::Mul(hn::Mul(entries[k], scale), other), block,
                    out + (j + k) * kLanes<T> + m);
        }
      }
    }
    for (; j <= i; ++j) {
      for (size_t m = 0; m < kLanes<T>; ++m) {
        out[j * kLanes<T> + m] =
            group.matrices[m][i * n + j] * group.half_scale[m] * group.other_half_scale[m];
      }
    }
  }
}

/// The results of lane `lane` of a column of sorted eigenvalues.
template <typename T>
void write_values(const Group<T>& group, size_t m, const Column<double>& sorted, size_t lane,
                  bool solved, size_t n, double* values, SolveState* state) {
  if (!group.finite[m]) {
    *state = SolveState::kNotFinite;
    std::fill(values, values + n, std::numeric_limits<double>::quiet_NaN());
    return;
  }
  const int half = group.exponent[m] / 2;
  const double scale = std::ldexp(1.0, half), other = std::ldexp(1.0, group.exponent[m] - half);
  for (size_t i = 0; i < n; ++i) {
    const double value = sorted.data()[i * kLanes<double> + lane];
    solved = solved && std::isfinite(value);
    values[i] = value * scale * other;
  }
  *state = solved ? SolveState::kSolved : SolveState::kNotConverged;
}

/// The first of `count` matrices, as many as fill C columns of double or less: reduced group after
/// group of T, iterated together.
template <typename T, size_t C>
void solve_columns(Scratch<T>& scratch, const T* matrices, size_t count, size_t n,
                   int64_t max_sweeps, double* values, SolveState* states) {
  constexpr size_t kWide = kLanes<double>, kColumns = kLanes<T> / kWide,
                   G = (C + kColumns - 1) / kColumns;
  count = std::min(count, C * kWide);
  const Tag<double> d;
  Group<T> groups[G];
  alignas(64) double flags[G * kLanes<T>] = {};  // 1: a lane at work, below: a solved one
  for (size_t g = 0; g * kLanes<T> < count; ++g) {
    groups[g] = make_group(matrices + g * kLanes<T> * n * n, count - g * kLanes<T>, n);
    interleave(groups[g], n, scratch.packed());
    tridiagonalise(scratch, n, scratch.diagonal + g * kColumns, scratch.squares + g * kColumns);
    for (size_t m = 0; m < kLanes<T>; ++m) flags[g * kLanes<T> + m] = groups[g].finite[m] ? 1 : 0;
  }
  QlIteration<C> ql(scratch.diagonal, scratch.squares, n, std::numeric_limits<T>::epsilon() / 2);
  for (size_t column = 0; column < C; ++column)
    ql.skip(column, hn::Eq(hn::Load(d, flags + column * kWide), hn::Zero(d)));
  hn::Mask<Tag<double>> solved[C];
  ql.run(max_sweeps, solved);
  for (size_t column = 0; column < C; ++column) {
    sort_lanes(scratch.diagonal[column], n);
    hn::Store(hn::IfThenElseZero(solved[column], hn::Set(d, 1.0)), d, flags + column * kWide);
  }
  for (size_t m = 0; m < count; ++m) {
    write_values(groups[m / kLanes<T>], m % kLanes<T>, scratch.diagonal[m / kWide], m % kWide,
                 flags[m] != 0, n, values + m * n, states + m);
  }
}

template <typename T, size_t... kLess>
void solve_with(std::index_sequence<kLess...>, const T* matrices, int64_t count, int64_t order,
                int64_t max_sweeps, double* values, SolveState* states) {
  constexpr size_t kWide = kLanes<double>;
  const auto n = static_cast<size_t>(order), all = static_cast<size_t>(count);
  Scratch<T> scratch(n);
  for (size_t done = 0; done < all;) {
    const size_t left = all - done, columns = std::min(kGroups, (left + kWide - 1) / kWide);
    (void)((columns == kLess + 1 &&
            (solve_columns<T, kLess + 1>(scratch, matrices + done * n * n, left, n, max_sweeps,
                                         values + done * n, states + done),
             true)) ||
           ...);
    done += std::min(left, columns * kWide);
  }
}

template <typename T>
void solve(const T* matrices, int64_t count, int64_t order, int64_t max_sweeps, double* values,
           SolveState* states) {
  solve_with(std::make_index_sequence<kGroups>(), matrices, count, order, max_sweeps, values,
             states);
}

}  // namespace

void solve_f32(const float* matrices, int64_t count, int64_t n, int64_t max_sweeps, double* values,
               SolveState* states) {
  solve(matrices, count, n, max_sweeps, values, states);
}

void solve_f64(const double* matrices, int64_t count, int64_t n, int64_t max_sweeps, double* values,
               SolveState* states) {
  solve(matrices, count, n, max_sweeps, values, states);
}

int64_t grain() { return kGroups * kLanes<double>; }

int64_t lanes() { return kLanes<float>; }

int64_t column() { return kLanes<double>; }

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headscope::simd {

HWY_EXPORT(solve_f32);
HWY_EXPORT(solve_f64);
HWY_EXPORT(grain);
HWY_EXPORT(lanes);
HWY_EXPORT(column);

int64_t eigenvalue_targets() { return HWY_TARGETS; }

int64_t eigenvalue_grain() { return HWY_DYNAMIC_DISPATCH(grain)(); }

int64_t eigenvalue_lanes() { return HWY_DYNAMIC_DISPATCH(lanes)(); }

int64_t eigenvalue_column() { return HWY_DYNAMIC_DISPATCH(column)(); }

void symmetric_eigenvalues(const float* matrices, int64_t count, int64_t n, int64_t max_sweeps,
                           double* values, SolveState* states) {
  HWY_DYNAMIC_DISPATCH(solve_f32)(matrices, count, n, max_sweeps, values, states);
}

void symmetric_eigenvalues(const double* matrices, int64_t count, int64_t n, int64_t max_sweeps,
                           double* values, SolveState* states) {
  HWY_DYNAMIC_DISPATCH(solve_f64)(matrices, count, n, max_sweeps, values, states);
}

}  // namespace headscope::simd
#endif
