// The Gram kernel on vectors, once for each SIMD target (hence no #pragma once: the guard toggles).
// A template over what a packed row is: a token, or a pair of bf16 tokens.
#if defined(HEADSCOPE_MEASURE_SIMD_GRAM_VECTORS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_MEASURE_SIMD_GRAM_VECTORS_INL_H_
#undef HEADSCOPE_MEASURE_SIMD_GRAM_VECTORS_INL_H_
#else
#define HEADSCOPE_MEASURE_SIMD_GRAM_VECTORS_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "csrc/measure/simd/gram.h"
#include "csrc/measure/simd/load-inl.h"

#ifndef HEADSCOPE_MEASURE_SIMD_GRAM_VECTORS_ONCE
#define HEADSCOPE_MEASURE_SIMD_GRAM_VECTORS_ONCE
namespace headscope::simd {
namespace {

// Tokens per block. Each block is summed on its own and then added to G: the rounding error grows
// with the number of blocks, not of tokens.
constexpr int64_t kBlockTokens = 64;
constexpr int64_t kWorkspaceBytes = 64 << 10;
// The widest vector of any target in elements: columns are padded to a multiple of it.
constexpr int64_t kWidestVector = 16;
// Rows of the block are kept off multiples of 4 KB, where they would fight for the same cache sets.
constexpr int64_t kRowPadding = 16;

int64_t padded_width(int64_t width) {
  return (width + kWidestVector - 1) / kWidestVector * kWidestVector + kRowPadding;
}

/// Tokens packed at a time: fewer for heads so wide that 64 do not fit the workspace.
int64_t block_tokens(int64_t width, int64_t sum_bytes) {
  return std::clamp<int64_t>(kWorkspaceBytes / (padded_width(width) * sum_bytes), 1, kBlockTokens);
}

}  // namespace
}  // namespace headscope::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

// Tiles of at most kTileVectors columns of vectors, kTileSums in all: 12 accumulators in 16
// registers, or 24 in 32. The wider a tile, the fewer loads for its products.
#if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM
constexpr int64_t kTileVectors = 4, kTileSums = 24;
#else
constexpr int64_t kTileVectors = 2, kTileSums = 12;
#endif

/// A packed row is a token, a word an element of it.
struct Tokens {
  static constexpr int64_t kTokens = 1;

  template <class V>
  static HWY_INLINE V multiply_add(V x, V y, V sum) {
    return hn::MulAdd(x, y, sum);
  }
};

#if HWY_TARGET == HWY_AVX3
/// A packed row is two tokens of bf16, a word an element of the earlier one in its low half and of
/// the later one in its high half. Highway has the instruction for later targets only.
struct TokenPairs {
  static constexpr int64_t kTokens = 2;

  /// sum + x[high] y[high] + x[low] y[low], rounded after each.
  template <class V>
  static HWY_INLINE V multiply_add(V x, V y, V sum) {
    auto total = sum.raw;
    __asm__("vdpbf16ps %2, %1, %0" : "+v"(total) : "v"(x.raw), "v"(y.raw));
    return V{total};
  }
};
#endif

/// kVectors vectors of columns of every row, about the shift, into the block; their sums over the
/// rows are added to `sum`, if that is asked for.
template <int64_t kVectors, typename Sum, typename In>
HWY_INLINE void pack_columns(const In* const* rows, int64_t count, int64_t column, const Sum* shift,
                             int64_t stride, Sum* HWY_RESTRICT block, Sum* sum) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::VFromD<decltype(d)> about[kVectors], total[kVectors];
  for (int64_t v = 0; v < kVectors; ++v) {
    about[v] = hn::LoadU(d, shift + column + v * lanes);
    total[v] = hn::Zero(d);
  }
  Sum* target = block + column;
  for (int64_t r = 0; r < count; ++r, target += stride) {
    for (int64_t v = 0; v < kVectors; ++v) {
      const auto x = hn::Sub(load_widened(d, rows[r] + column + v * lanes), about[v]);
      hn::Store(x, d, target + v * lanes);
      total[v] = hn::Add(total[v], x);
    }
  }
  if (sum == nullptr) return;
  for (int64_t v = 0; v < kVectors; ++v) {
    Sum* out = sum + column + v * lanes;
    hn::StoreU(hn::Add(hn::LoadU(d, out), total[v]), d, out);
  }
}

/// Kept tokens of a block.
template <typename In>
struct KeptTokens {
  const In* row[kBlockTokens];
  int64_t count = 0;
};

template <typename In>
HWY_INLINE KeptTokens<In> keep_tokens(const HeadTokens& z, const In* data, int64_t capacity,
                                      int64_t* next) {
  KeptTokens<In> rows;
  int64_t t = *next;
  for (; t < z.tokens && rows.count < capacity; ++t) {
    if (z.keep == nullptr || z.keep[t * z.keep_stride])
      rows.row[rows.count++] = data + t * z.token_stride;
  }
  *next = t;
  return rows;
}

/// Zeros from `width` up to a whole vector.
template <typename Sum>
HWY_INLINE void pad_rows(int64_t rows, int64_t stride, int64_t width, Sum* block) {
  if (width == stride - kRowPadding) return;
  for (int64_t r = 0; r < rows; ++r)
    std::fill(block + r * stride + width, block + (r + 1) * stride - kRowPadding, Sum{0});
}

/// Packs tokens about the shift into rows of `stride` sums, and adds them to `sum` unless that is
/// null; returns how many rows.
template <typename Sum, typename In>
HWY_INLINE int64_t pack_tokens(const KeptTokens<In>& tokens, const HeadTokens& z, const Sum* shift,
                               int64_t stride, Sum* block, Sum* sum) {
  int64_t i = 0;
  if constexpr (kLoadsWide<In, Sum>) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Sum>()));
    if (z.width_stride == 1) {
      for (; i + 4 * lanes <= z.width; i += 4 * lanes)
        pack_columns<4>(tokens.row, tokens.count, i, shift, stride, block, sum);
      for (; i + lanes <= z.width; i += lanes)
        pack_columns<1>(tokens.row, tokens.count, i, shift, stride, block, sum);
    }
  }
  for (; i < z.width; ++i) {
    Sum total = 0;
    for (int64_t r = 0; r < tokens.count; ++r) {
      const Sum x = widen_one<Sum>(tokens.row[r][i * z.width_stride]) - shift[i];
      block[r * stride + i] = x;
      total += x;
    }
    if (sum != nullptr) sum[i] += total;
  }
  pad_rows(tokens.count, stride, z.width, block);
  return tokens.count;
}

/// Packs pairs of bf16 tokens likewise, about zero; one without a partner is paired with zeros.
template <class Row>
HWY_INLINE int64_t pack_pairs(const KeptTokens<hwy::bfloat16_t>& tokens, const HeadTokens& z,
                              int64_t stride, float* block, float* sum) {
  const hn::ScalableTag<float> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  const hn::Rebind<uint16_t, decltype(d)> half;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), pairs = (tokens.count + 1) / 2;
  const auto bits_of = [&](int64_t token) HWY_ATTR {
    return reinterpret_cast<const uint16_t*>(tokens.row[token]);
  };
  const auto ones = hn::BitCast(d, hn::Set(du, 0x3f803f80u));
  int64_t i = 0;
  for (; z.width_stride == 1 && i + lanes <= z.width; i += lanes) {
    auto total = hn::Zero(d);
    for (int64_t r = 0; r < pairs; ++r) {
      auto words = hn::PromoteTo(du, hn::LoadU(half, bits_of(2 * r) + i));
      if (2 * r + 1 < tokens.count) {
        const auto later = hn::PromoteTo(du, hn::LoadU(half, bits_of(2 * r + 1) + i));
        words = hn::Or(words, hn::ShiftLeft<16>(later));
      }
      hn::Store(hn::BitCast(d, words), d, block + r * stride + i);
      total = Row::multiply_add(ones, hn::BitCast(d, words), total);
    }
    if (sum != nullptr) hn::StoreU(hn::Add(hn::LoadU(d, sum + i), total), d, sum + i);
  }
  for (; i < z.width; ++i) {
    float total = 0;
    for (int64_t r = 0; r < pairs; ++r) {
      uint32_t word = bits_of(2 * r)[i * z.width_stride];
      total += std::bit_cast<float>(word << 16);
      if (2 * r + 1 < tokens.count) {
        const uint32_t later = bits_of(2 * r + 1)[i * z.width_stride];
        total += std::bit_cast<float>(later << 16);
        word |= later << 16;
      }
      hwy::CopyBytes<4>(&word, block + r * stride + i);
    }
    if (sum != nullptr) sum[i] += total;
  }
  pad_rows(pairs, stride, z.width, block);
  return pairs;
}

/// G[row .. row + kRows, column .. column + kVectors lanes) += block^T block, of `rows` rows.
template <class Row, int64_t kRows, int64_t kVectors, typename Sum>
HWY_INLINE void add_tile(const Sum* HWY_RESTRICT block, int64_t rows, int64_t stride, int64_t row,
                         int64_t column, int64_t width, Sum* HWY_RESTRICT gram) {
  const hn::ScalableTag<Sum> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::VFromD<decltype(d)> sums[kRows][kVectors];
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  const Sum* left = block + row;
  const Sum* right = block + column;
  for (int64_t n = 0; n < rows; ++n, left += stride, right += stride) {
    hn::VFromD<decltype(d)> x[kVectors];
    for (int64_t v = 0; v < kVectors; ++v) x[v] = hn::Load(d, right + v * lanes);
    for (int64_t r = 0; r < kRows; ++r) {
      const auto y = hn::Set(d, left[r]);
      for (int64_t v = 0; v < kVectors; ++v) sums[r][v] = Row::multiply_add(y, x[v], sums[r][v]);
    }
  }
  Sum* out = gram + row * width + column;
  if (column + kVectors * lanes <= width) {
    for (int64_t r = 0; r < kRows; ++r, out += width) {
      for (int64_t v = 0; v < kVectors; ++v)
        hn::StoreU(hn::Add(hn::LoadU(d, out + v * lanes), sums[r][v]), d, out + v * lanes);
    }
    return;
  }
  for (int64_t r = 0; r < kRows; ++r, out += width) {
    HWY_ALIGN Sum tail[kVectors * hn::MaxLanes(d)];
    for (int64_t v = 0; v < kVectors; ++v) hn::Store(sums[r][v], d, tail + v * lanes);
    for (int64_t i = 0; i < width - column; ++i) out[i] += tail[i];
  }
}

/// The tokens of the next block where they lie, fetched while this one is multiplied: a view's
/// tokens are kilobytes apart, which no hardware prefetcher follows.
struct NextTokens {
  const char* data = nullptr;
  int64_t tokens = 0, token_bytes = 0, row_bytes = 0;

  /// Asks for the lines of part `part` of `parts`: all at once would wait for each other. Inlined
  /// always: GCC drops calls of a function that does nothing but prefetch.
  HWY_INLINE void prefetch(int64_t part, int64_t parts) const {
    for (int64_t t = tokens * part / parts; t < tokens * (part + 1) / parts; ++t) {
      const char* row = data + t * token_bytes;
      for (int64_t line = 0; line < row_bytes; line += 64) hwy::Prefetch(row + line);
    }
  }
};

template <typename In>
NextTokens next_tokens(const HeadTokens& z, const In* data, int64_t next, int64_t capacity) {
  if (z.width_stride != 1) return {};
  constexpr int64_t kSize = sizeof(In);
  return {reinterpret_cast<const char*>(data + next * z.token_stride),
          std::min(capacity, z.tokens - next), z.token_stride * kSize, z.width * kSize};
}

/// Calls visit(height, vectors) with both as types: std::integral_constant of what is known at run
/// time.
template <typename Visit>
HWY_INLINE void visit_shape(int64_t height, int64_t vectors, Visit&& visit) {
  const auto visit_height = [&]<int64_t kVectors, int64_t... kLess>(
      std::integral_constant<int64_t, kVectors> constant, std::integer_sequence<int64_t, kLess...>)
      HWY_ATTR {
    (void)((height == kLess + 1 &&
            (visit(std::integral_constant<int64_t, kLess + 1>(), constant), true)) ||
           ...);
  };
  const auto visit_vectors = [&]<int64_t... kLess>(std::integer_sequence<int64_t, kLess...>)
      HWY_ATTR {
    (void)((vectors == kLess + 1 &&
            (visit_height(std::integral_constant<int64_t, kLess + 1>(),
                          std::make_integer_sequence<int64_t, kTileSums / (kLess + 1)>()),
             true)) ||
           ...);
  };
  visit_vectors(std::make_integer_sequence<int64_t, kTileVectors>());
}

/// Calls visit(row, height) for tiles of the rows [first, last), as equal as they come: a last tile
/// of one row would wait on its own additions.
template <typename Visit>
HWY_INLINE void for_each_height(int64_t first, int64_t last, int64_t tallest, Visit&& visit) {
  const int64_t rows = last - first, tiles = (rows + tallest - 1) / tallest;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = rows * tile / tiles;
    visit(first + row, rows * (tile + 1) / tiles - row);
  }
}

/// Calls visit(row, height, column, vectors) for every tile that touches the upper triangle: in
/// each panel of kTileVectors vectors of columns the rows down to the end of the first vector's
/// diagonal, then those of the second's without the first vector, and so on.
template <typename Visit>
HWY_INLINE void for_each_tile(int64_t width, int64_t lanes, Visit&& visit) {
  for (int64_t panel = 0; panel < width; panel += kTileVectors * lanes) {
    const int64_t end = std::min(width, panel + kTileVectors * lanes);
    for (int64_t column = panel, first = 0; column < end; column += lanes) {
      const int64_t last = std::min(end, column + lanes),
                    vectors = (end - column + lanes - 1) / lanes;
      for_each_height(first, last, kTileSums / vectors, [&](int64_t row, int64_t height) HWY_ATTR {
        visit(row, height, column, vectors);
      });
      first = last;
    }
  }
}

/// Adds a packed block's products to the tiles [first, last) of G. Not inlined: one copy serves
/// every element type.
template <class Row, typename Sum>
HWY_NOINLINE void add_block(const Sum* block, int64_t rows, int64_t stride, int64_t width,
                            int64_t first, int64_t last, const NextTokens& next, Sum* gram) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Sum>()));
  int64_t tile = 0;
  for_each_tile(
      width, lanes, [&](int64_t row, int64_t height, int64_t column, int64_t vectors) HWY_ATTR {
        const bool mine = tile >= first && tile < last;
        ++tile;
        if (!mine) return;
        next.prefetch(tile - 1 - first, last - first);
        visit_shape(height, vectors, [&](auto rows_of, auto vectors_of) HWY_ATTR {
          add_tile<Row, rows_of, vectors_of>(block, rows, stride, row, column, width, gram);
        });
      });
}

/// add_gram. Row: Tokens, or pairs for bf16 z about zero.
template <class Row, typename Sum>
HWY_INLINE void add_tokens(const HeadTokens& z, const Sum* shift, GramShare share, Sum* block,
                           Sum* gram, Sum* sum) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<Sum>()));
  const int64_t stride = padded_width(z.width),
                capacity = block_tokens(z.width, static_cast<int64_t>(sizeof(Sum)));
  int64_t tiles = 0;
  for_each_tile(z.width, lanes, [&](auto...) { ++tiles; });
  if (share.index != 0) sum = nullptr;
  for (int64_t next = 0; next < z.tokens;) {
    int64_t rows = 0;
    NextTokens ahead;
    const auto pack = [&](const auto* data) HWY_ATTR {
      const auto tokens = keep_tokens(z, data, capacity, &next);
      if constexpr (Row::kTokens == 2) {
        rows = pack_pairs<Row>(tokens, z, stride, block, sum);
      } else {
        rows = pack_tokens(tokens, z, shift, stride, block, sum);
      }
      ahead = next_tokens(z, data, next, capacity);
    };
    if constexpr (Row::kTokens == 2) {
      pack(static_cast<const hwy::bfloat16_t*>(z.data));
    } else {
      visit_elements(z.data, z.element, 0, pack);
    }
    add_block<Row>(block, rows, stride, z.width, tiles * share.index / share.of,
                   tiles * (share.index + 1) / share.of, ahead, gram);
  }
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
