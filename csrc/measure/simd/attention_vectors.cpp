#include "csrc/measure/simd/attention_vectors.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

// clang-format off: foreach_target.h compiles this file once for each target and comes first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/measure/simd/attention_vectors.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "csrc/measure/simd/load-inl.h"
#include "csrc/measure/simd/math-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

// Keys of a panel's tile: as many accumulators as leave registers for a key and a query, and no
// more than there are general registers to address their keys.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int64_t kTileKeys = 16;
#else
constexpr int64_t kTileKeys = 12;
#endif

template <typename Sum>
constexpr Sum kMinusInfinity = -std::numeric_limits<Sum>::infinity();

// Rows read ahead of their use: enough to hide the latency of memory, few enough to stay cached.
constexpr int64_t kRowsAhead = 16;

// Of what is read next, asked for with each vector of scores: memory must not idle meanwhile.
constexpr int64_t kNextBytes = 256;

/// Asks for row `index` of `width` elements side by side.
template <typename In>
HWY_INLINE void prefetch_row(const In* rows, int64_t token_stride, int64_t index, int64_t width) {
  constexpr int64_t kLine = 64 / sizeof(In);
  const In* row = rows + index * token_stride;
  for (int64_t i = 0; i < width; i += kLine) hwy::Prefetch(row + i);
}

template <typename Sum>
void widen_rows(const void* source, Element element, int64_t token_stride, int64_t width_stride,
                int64_t rows, int64_t after, int64_t width, int64_t padded_width, Sum* target) {
  visit_elements(source, element, 0, [&](const auto* data) HWY_ATTR {
    for (int64_t i = 0; i < rows; ++i) {
      if (width_stride == 1 && i + kRowsAhead < rows + after)
        prefetch_row(data, token_stride, i + kRowsAhead, width);
      Sum* row = target + i * padded_width;
      widen_strided(data + i * token_stride, width_stride, width, row);
      std::fill(row + width, row + padded_width, Sum{0});
    }
  });
}

template <int64_t kKeys, typename Sum>
HWY_INLINE void score_tile(const Sum* HWY_RESTRICT keys, int64_t token_stride,
                           const Sum* HWY_RESTRICT queries, int64_t width, Sum scale,
                           Sum* HWY_RESTRICT scores) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::VFromD<decltype(d)> dots[kKeys];
  for (int64_t j = 0; j < kKeys; ++j) dots[j] = hn::Zero(d);
  for (int64_t i = 0; i < width; ++i) {
    const auto query = hn::Load(d, queries + i * lanes);
    const Sum* key = keys + i;
    for (int64_t j = 0; j < kKeys; ++j)
      dots[j] = hn::MulAdd(query, hn::Set(d, key[j * token_stride]), dots[j]);
  }
  for (int64_t j = 0; j < kKeys; ++j)
    hn::Store(hn::Mul(dots[j], hn::Set(d, scale)), d, scores + j * lanes);
}

template <typename Sum, size_t... kHeights>
HWY_INLINE void score_tile_of_height(std::index_sequence<kHeights...>, int64_t height,
                                     const Sum* keys, int64_t token_stride, const Sum* queries,
                                     int64_t width, Sum scale, Sum* scores) {
  (void)((height == kHeights + 1 &&
          (score_tile<kHeights + 1>(keys, token_stride, queries, width, scale, scores), true)) ||
         ...);
}

template <typename Sum>
void score_panel(const Sum* keys, int64_t token_stride, int64_t count, const Sum* queries,
                 int64_t width, Sum scale, Sum* scores) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Sum>()));
  // Heights as equal as they come, so that no tile is too small to hide the latency of its sums.
  const int64_t tiles = (count + kTileKeys - 1) / kTileKeys;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t first = count * tile / tiles, height = count * (tile + 1) / tiles - first;
    score_tile_of_height(std::make_index_sequence<kTileKeys>(), height, keys + first * token_stride,
                         token_stride, queries, width, scale, scores + first * lanes);
  }
}

/// Products of a key with the query, summed to one vector. A key is read from end to end before the
/// next, as the hardware prefetcher likes it.
template <class D, typename Sum>
HWY_INLINE hn::VFromD<D> dot_key(D d, const Sum* HWY_RESTRICT key, const Sum* HWY_RESTRICT query,
                                 int64_t width) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes <= width; i += 2 * lanes) {
    even = hn::MulAdd(hn::Load(d, query + i), hn::LoadU(d, key + i), even);
    odd = hn::MulAdd(hn::Load(d, query + i + lanes), hn::LoadU(d, key + i + lanes), odd);
  }
  if (i < width) even = hn::MulAdd(hn::Load(d, query + i), hn::LoadU(d, key + i), even);
  return hn::Add(even, odd);
}

// A query of D = 64 in vectors of 8: what fits into registers beside the sums.
constexpr int64_t kHeldVectors = 8;

/// The same for a query that stays in registers; equal bits.
template <class D, typename Sum>
HWY_INLINE hn::VFromD<D> dot_held(D d, const Sum* HWY_RESTRICT key,
                                  const hn::VFromD<D> (&query)[kHeldVectors]) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::MulAdd(query[0], hn::LoadU(d, key), hn::Zero(d)),
       odd = hn::MulAdd(query[1], hn::LoadU(d, key + lanes), hn::Zero(d));
  for (int64_t v = 2; v < kHeldVectors; v += 2) {
    even = hn::MulAdd(query[v], hn::LoadU(d, key + v * lanes), even);
    odd = hn::MulAdd(query[v + 1], hn::LoadU(d, key + (v + 1) * lanes), odd);
  }
  return hn::Add(even, odd);
}

template <class D, typename Sum, class Dot>
HWY_INLINE void score_line_with(D d, const Sum* keys, int64_t token_stride, int64_t count,
                                int64_t after, int64_t width, Sum scale, Sum* scores,
                                const Dot& dot) {
  constexpr int64_t kKeys = 8;
  int64_t j = 0;
  for (; j + kKeys <= count; j += kKeys) {
    const Sum* tile = keys + j * token_stride;
    const int64_t ahead = std::min(kKeys, count + after - j - kRowsAhead);
    hn::VFromD<D> dots[kKeys];
    if (ahead == kKeys) {
      for (int64_t key = 0; key < kKeys; ++key) {
        prefetch_row(tile, token_stride, kRowsAhead + key, width);
        dots[key] = dot(tile + key * token_stride);
      }
    } else {
      for (int64_t key = 0; key < kKeys; ++key) dots[key] = dot(tile + key * token_stride);
    }
    sum_lanes_of_8(d, dots, scale, scores + j);
  }
  for (; j < count; ++j)
    scores[j] = hn::GetLane(hn::SumOfLanes(d, dot(keys + j * token_stride))) * scale;
}

template <typename Sum>
void score_line(const Sum* keys, int64_t token_stride, int64_t count, int64_t after,
                const Sum* query, int64_t width, Sum scale, Sum* scores) {
  // 8 lanes at most: the keys are what it waits for, and 8 sums are turned into a vector cheaply.
  const hn::CappedTag<Sum, 8> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (width == kHeldVectors * lanes) {
    hn::VFromD<decltype(d)> held[kHeldVectors];
    for (int64_t v = 0; v < kHeldVectors; ++v) held[v] = hn::Load(d, query + v * lanes);
    score_line_with(d, keys, token_stride, count, after, width, scale, scores,
                    [&](const Sum* key) HWY_ATTR { return dot_held(d, key, held); });
    return;
  }
  score_line_with(d, keys, token_stride, count, after, width, scale, scores,
                  [&](const Sum* key) HWY_ATTR { return dot_key(d, key, query, width); });
}

template <typename Sum>
void cap_scores(Sum* scores, int64_t count, Sum softcap) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto cap = hn::Set(d, softcap);
  for (int64_t i = 0; i < count; i += lanes) {
    const auto ratio = hn::Div(hn::LoadU(d, scores + i), cap);
    // Tanh is exact only for what is finite; a NaN stays one, an infinity saturates.
    const auto bounded = hn::Clamp(ratio, hn::Set(d, Sum{-20}), hn::Set(d, Sum{20}));
    const auto capped = hn::Mul(cap, hn::Tanh(d, bounded));
    hn::StoreU(hn::IfThenElse(hn::IsNaN(ratio), ratio, capped), d, scores + i);
  }
}

template <typename Sum>
void hide_outside(Sum* scores, int64_t count, const Sum* first, const Sum* last) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto begin = hn::LoadU(d, first), end = hn::LoadU(d, last),
             hidden = hn::Set(d, kMinusInfinity<Sum>);
  for (int64_t j = 0; j < count; ++j) {
    const auto key = hn::Set(d, static_cast<Sum>(j));
    const auto seen = hn::And(hn::Ge(key, begin), hn::Lt(key, end));
    Sum* row = scores + j * lanes;
    hn::StoreU(hn::IfThenElse(seen, hn::LoadU(d, row), hidden), d, row);
  }
}

template <typename Sum>
void absorb(OnlineSoftmax<Sum>& softmax, const Sum* scores, int64_t steps, bool is_one_row,
            const Sum* next) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto bottom = hn::Set(d, kMinusInfinity<Sum>), zero = hn::Zero(d);
  auto largest = bottom;
  auto nan = hn::IsNaN(zero);
  for (int64_t step = 0; step < steps; ++step) {
    const auto score = hn::LoadU(d, scores + step * lanes);
    largest = hn::Max(largest, score);
    nan = hn::Or(nan, hn::IsNaN(score));
  }
  auto before = hn::LoadU(d, softmax.max);
  if (is_one_row) {
    largest = hn::MaxOfLanes(d, largest);
    before = hn::Set(d, softmax.max[0]);
  }
  // A column with NaN keeps the maximum it had; its sums no longer matter.
  const auto top = hn::IfThenElse(nan, before, hn::Max(before, largest));
  const auto about = hn::IfThenElse(hn::IsFinite(top), top, zero);
  auto total = zero, weighted = zero;
  // Keeps exp(-inf) (-inf) at zero; below it exp is zero.
  const auto floor = hn::Set(d, Sum{-1000});
  for (int64_t step = 0; step < steps; ++step) {
    const auto distance = hn::Max(hn::Sub(hn::LoadU(d, scores + step * lanes), about), floor);
    const auto weight = exp_negative(d, distance);
    total = hn::Add(total, weight);
    weighted = hn::MulAdd(weight, distance, weighted);
    if (next != nullptr)
      prefetch_row(next, kNextBytes / sizeof(Sum), step, kNextBytes / sizeof(Sum));
  }
  HWY_ALIGN Sum tops[hn::MaxLanes(d)], totals[hn::MaxLanes(d)], weights[hn::MaxLanes(d)],
      broken[hn::MaxLanes(d)];
  hn::Store(top, d, tops);
  hn::Store(total, d, totals);
  hn::Store(weighted, d, weights);
  hn::Store(hn::IfThenElseZero(nan, hn::Set(d, Sum{1})), d, broken);
  double shift = 0, factor = 1;
  const auto add = [&](int64_t c, double own_total, double own_weighted, bool is_broken) {
    if (is_broken || tops[c] == -kMinusInfinity<Sum>) softmax.broken[c] = true;
    if (softmax.broken[c]) return;
    if (tops[c] > softmax.max[c] && softmax.total[c] > 0) {
      const double own = static_cast<double>(softmax.max[c]) - static_cast<double>(tops[c]);
      if (own != shift) factor = std::exp(shift = own);
      softmax.weighted[c] =
          factor == 0 ? 0 : factor * (softmax.weighted[c] + softmax.total[c] * shift);
      softmax.total[c] *= factor;
    }
    softmax.max[c] = tops[c];
    softmax.total[c] += own_total;
    softmax.weighted[c] += own_weighted;
  };
  if (!is_one_row) {
    for (int64_t c = 0; c < lanes; ++c) {
      add(c, static_cast<double>(totals[c]), static_cast<double>(weights[c]), broken[c] != 0);
    }
    return;
  }
  double own_total = 0, own_weighted = 0;
  for (int64_t c = 0; c < lanes; ++c) {
    own_total += static_cast<double>(totals[c]);
    own_weighted += static_cast<double>(weights[c]);
  }
  add(0, own_total, own_weighted, !hn::AllFalse(d, nan));
}

template <typename Sum>
void weigh(Sum* scores, int64_t steps, const Sum* about) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto top = hn::LoadU(d, about);
  for (int64_t step = 0; step < steps; ++step) {
    Sum* row = scores + step * lanes;
    hn::StoreU(exp_negative(d, hn::Sub(hn::LoadU(d, row), top)), d, row);
  }
}

template <typename Sum>
void add_weighted(const Sum* value, double weight, int64_t width, double* row) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, weight);
  int64_t i = 0;
  for (; i + lanes <= width; i += lanes) {
    const auto wide = [&]() HWY_ATTR {
      if constexpr (std::is_same_v<Sum, double>)
        return hn::LoadU(d, value + i);
      else
        return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Sum, decltype(d)>(), value + i));
    };
    hn::StoreU(hn::MulAdd(factor, wide(), hn::LoadU(d, row + i)), d, row + i);
  }
  for (; i < width; ++i) row[i] += weight * static_cast<double>(value[i]);
}

template <typename Sum>
const AttentionKernels<Sum>& table() {
  static const AttentionKernels<Sum> kernels = {
      static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Sum>())),
      widen_rows<Sum>,
      score_panel<Sum>,
      score_line<Sum>,
      cap_scores<Sum>,
      hide_outside<Sum>,
      absorb<Sum>,
      weigh<Sum>,
      add_weighted<Sum>};
  return kernels;
}

const AttentionKernels<float>& kernels_f32() { return table<float>(); }
const AttentionKernels<double>& kernels_f64() { return table<double>(); }

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headscope::simd {

HWY_EXPORT(kernels_f32);
HWY_EXPORT(kernels_f64);

template <>
const AttentionKernels<float>& attention_kernels() {
  return HWY_DYNAMIC_DISPATCH(kernels_f32)();
}

template <>
const AttentionKernels<double>& attention_kernels() {
  return HWY_DYNAMIC_DISPATCH(kernels_f64)();
}

}  // namespace headscope::simd
#endif
