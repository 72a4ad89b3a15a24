// The Gram kernel on tile registers, once for each SIMD target (hence no #pragma once: the guard
// toggles). A template over the tiles: HardwareTiles, or the tests' emulation of them.
#if defined(HEADSCOPE_MEASURE_SIMD_GRAM_AMX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEADSCOPE_MEASURE_SIMD_GRAM_AMX_INL_H_
#undef HEADSCOPE_MEASURE_SIMD_GRAM_AMX_INL_H_
#else
#define HEADSCOPE_MEASURE_SIMD_GRAM_AMX_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "csrc/measure/simd/amx_tiles.h"
#include "csrc/measure/simd/gram_amx.h"
#include "csrc/measure/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

// A word is a pair of bf16: one column of two successive tokens, the earlier one in the low half.
constexpr int64_t kPanel = 16;  // columns of z in a tile
constexpr int64_t kTileWords = 16 * kPanel;
constexpr int64_t kStepTokens = 32;  // tokens in a tile
constexpr int64_t kSteps = kAmxBlockTokens / kStepTokens;
constexpr uint32_t kHighHalf = 0xffff0000u;

/// Kept tokens of a block.
template <typename In>
struct TokenRows {
  const In* row[kAmxBlockTokens];
  int64_t count = 0;
  int64_t width_stride;
  int64_t next_block;  // elements from a row to one of the next block, 0: there may be none
};

template <typename In>
HWY_INLINE TokenRows<In> take_rows(const HeadTokens& z, int64_t* next) {
  TokenRows<In> rows;
  rows.width_stride = z.width_stride;
  int64_t t = *next;
  for (; t < z.tokens && rows.count < kAmxBlockTokens; ++t) {
    if (z.keep != nullptr && !z.keep[t * z.keep_stride]) continue;
    rows.row[rows.count++] = static_cast<const In*>(z.data) + t * z.token_stride;
  }
  rows.next_block = t + kAmxBlockTokens <= z.tokens ? kAmxBlockTokens * z.token_stride : 0;
  *next = t;
  return rows;
}

/// A block as kTerms bf16 terms, tile by tile: 16 pairs of tokens by 16 columns. This is the layout
/// of a right factor; that of a left one is its transpose.
template <int kTerms>
struct PackedBlock {
  uint32_t* words;
  int64_t panels;
  int64_t steps;  // those in use

  HWY_INLINE uint32_t* tile(int term, int64_t step, int64_t panel) const {
    return words + ((term * kSteps + step) * panels + panel) * kTileWords;
  }
};

/// A vector of columns of a row; those from `valid` on are zero.
template <class D, typename In>
HWY_INLINE hn::VFromD<D> load_columns(D d, const In* row, int64_t stride, int64_t valid) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  if (stride == 1 && valid >= lanes) return load_widened(d, row);
  HWY_ALIGN float columns[kPanel] = {};
  for (int64_t i = 0; i < std::min(lanes, valid); ++i)
    columns[i] = widen_one<float>(row[i * stride]);
  return hn::Load(d, columns);
}

/// Splits x into terms, each the nearest bf16 to what those before it left, as the high half of a
/// word. The last one is cut off instead, which loses nothing where it fits, and keeps a NaN.
template <int kTerms, class V, class U>
HWY_INLINE void split(V x, U (&terms)[kTerms]) {
  const hn::DFromV<V> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  for (int term = 0; term + 1 < kTerms; ++term) {
    terms[term] = hn::And(hn::Add(hn::BitCast(du, x), hn::Set(du, 0x8000)), hn::Set(du, kHighHalf));
    x = hn::Sub(x, hn::BitCast(d, terms[term]));
  }
  terms[kTerms - 1] = hn::BitCast(du, x);
}

/// Packs 16 columns of the rows about `about`, and adds their sums to `sums`; columns from `valid`
/// on, and rows up to a whole step, are zero.
template <int kTerms, typename In>
HWY_INLINE void pack_panel(const TokenRows<In>& rows, int64_t panel, int64_t valid,
                           const float* about, const PackedBlock<kTerms>& block, float* sums) {
  const hn::CappedTag<float, kPanel> d;
  const hn::RebindToUnsigned<decltype(d)> du;
  using V = hn::VFromD<decltype(d)>;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), stride = rows.width_stride;
  for (int64_t i = 0; i < kPanel; i += lanes) {
    const int64_t offset = (panel * kPanel + i) * stride;
    const V centre = hn::Load(d, about + i);
    V total = hn::Zero(d);
    for (int64_t pair = 0; pair < block.steps * kStepTokens / 2; ++pair) {
      hn::VFromD<decltype(du)> first[kTerms], second[kTerms];
      V x = hn::Zero(d), y = hn::Zero(d);
      if (2 * pair < rows.count) {
        const In* row = rows.row[2 * pair] + offset;
        if (rows.next_block != 0) hwy::Prefetch(row + rows.next_block);
        x = hn::Sub(load_columns(d, row, stride, valid - i), centre);
      }
      if (2 * pair + 1 < rows.count) {
        const In* row = rows.row[2 * pair + 1] + offset;
        if (rows.next_block != 0) hwy::Prefetch(row + rows.next_block);
        y = hn::Sub(load_columns(d, row, stride, valid - i), centre);
      }
      total = hn::Add(total, hn::Add(x, y));
      split<kTerms>(x, first);
      split<kTerms>(y, second);
      const int64_t word = pair % kPanel * kPanel + i;
      for (int term = 0; term < kTerms; ++term) {
        const auto words =
            hn::OrAnd(hn::ShiftRight<16>(first[term]), second[term], hn::Set(du, kHighHalf));
        hn::Store(words, du, block.tile(term, pair / kPanel, panel) + word);
      }
    }
    hn::Store(hn::Add(hn::Load(d, sums + i), total), d, sums + i);
  }
}

#if HWY_TARGET != HWY_SCALAR
/// Stores the 4 words of each 128-bit block of v, `stride` words apart.
template <class D>
HWY_INLINE void store_blocks(D d, hn::VFromD<D> v, uint32_t* to, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == 4) {
    hn::Store(v, d, to);
  } else {
    const hn::Half<D> half;
    store_blocks(half, hn::LowerHalf(half, v), to, stride);
    store_blocks(half, hn::UpperHalf(half, v), to + hn::MaxLanes(half) / 4 * stride, stride);
  }
}

#endif

/// to[j][i] = from[i][j], 16 by 16 words.
HWY_INLINE void transpose_tile(const uint32_t* from, uint32_t* to) {
#if HWY_TARGET == HWY_SCALAR
  for (int64_t i = 0; i < kPanel; ++i) {
    for (int64_t j = 0; j < kPanel; ++j) to[j * kPanel + i] = from[i * kPanel + j];
  }
#else
  const hn::CappedTag<uint32_t, kPanel> d;
  const hn::Repartition<uint64_t, decltype(d)> d2;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < kPanel; i += 4) {
    for (int64_t j = 0; j < kPanel; j += lanes) {
      const uint32_t* row = from + i * kPanel + j;
      const auto row0 = hn::Load(d, row), row1 = hn::Load(d, row + kPanel),
                 row2 = hn::Load(d, row + 2 * kPanel), row3 = hn::Load(d, row + 3 * kPanel);
      const auto low01 = hn::BitCast(d2, hn::InterleaveLower(d, row0, row1)),
                 low23 = hn::BitCast(d2, hn::InterleaveLower(d, row2, row3)),
                 high01 = hn::BitCast(d2, hn::InterleaveUpper(d, row0, row1)),
                 high23 = hn::BitCast(d2, hn::InterleaveUpper(d, row2, row3));
      // Block b of each holds rows i to i + 3 of one column of j + 4 b to j + 4 b + 3.
      uint32_t* column = to + j * kPanel + i;
      constexpr int64_t kBlock = 4 * kPanel;
      store_blocks(d, hn::BitCast(d, hn::InterleaveLower(d2, low01, low23)), column, kBlock);
      store_blocks(d, hn::BitCast(d, hn::InterleaveUpper(d2, low01, low23)), column + kPanel,
                   kBlock);
      store_blocks(d, hn::BitCast(d, hn::InterleaveLower(d2, high01, high23)), column + 2 * kPanel,
                   kBlock);
      store_blocks(d, hn::BitCast(d, hn::InterleaveUpper(d2, high01, high23)), column + 3 * kPanel,
                   kBlock);
    }
  }
#endif
}

/// Two panels of a block as left factors.
template <int kTerms>
struct LeftFactors {
  HWY_ALIGN uint32_t words[2][kTerms][kSteps][kTileWords];
};

/// Products of terms that are kept, small ones first; a step from one to the next loads one factor.
/// What is left out of three terms is below 2^-23 of the whole.
struct TermProduct {
  int left, right;
};
template <int kTerms>
struct TermProducts;
template <>
struct TermProducts<1> {
  static constexpr TermProduct kList[] = {{0, 0}};
};
template <>
struct TermProducts<2> {
  static constexpr TermProduct kList[] = {{1, 0}, {1, 1}, {0, 1}, {0, 0}};
};
template <>
struct TermProducts<3> {
  static constexpr TermProduct kList[] = {{2, 0}, {1, 0}, {1, 1}, {0, 1}, {0, 2}, {0, 0}};
};

/// Multiplies kRows by kColumns tiles of G over a block and stores them to `products`; kIsDiagonal:
/// not the one below the diagonal. Up to four sums in flight hide the latency of a multiplication.
template <class Tiles, int kRows, int kColumns, bool kIsDiagonal, int kTerms>
HWY_INLINE void multiply(const LeftFactors<kTerms>& left, const PackedBlock<kTerms>& right,
                         int64_t column_panel, float (*products)[kTileWords]) {
  constexpr bool kHas10 = kRows == 2 && !kIsDiagonal, kHas01 = kColumns == 2,
                 kHas11 = kRows == 2 && kColumns == 2;
  Tiles::template zero<0>();
  if constexpr (kHas01) Tiles::template zero<1>();
  if constexpr (kHas10) Tiles::template zero<2>();
  if constexpr (kHas11) Tiles::template zero<3>();
  for (int64_t step = 0; step < right.steps; ++step) {
    TermProduct loaded{-1, -1};
    for (const TermProduct product : TermProducts<kTerms>::kList) {
      if (product.left != loaded.left) {
        Tiles::template load<4>(left.words[0][product.left][step], kTileRowBytes);
        if constexpr (kRows == 2)
          Tiles::template load<5>(left.words[1][product.left][step], kTileRowBytes);
      }
      if (product.right != loaded.right) {
        Tiles::template load<6>(right.tile(product.right, step, column_panel), kTileRowBytes);
        if constexpr (kHas01)
          Tiles::template load<7>(right.tile(product.right, step, column_panel + 1), kTileRowBytes);
      }
      loaded = product;
      Tiles::template multiply_add<0, 4, 6>();
      if constexpr (kHas01) Tiles::template multiply_add<1, 4, 7>();
      if constexpr (kHas10) Tiles::template multiply_add<2, 5, 6>();
      if constexpr (kHas11) Tiles::template multiply_add<3, 5, 7>();
    }
  }
  Tiles::template store<0>(products[0], kTileRowBytes);
  if constexpr (kHas01) Tiles::template store<1>(products[1], kTileRowBytes);
  if constexpr (kHas10) Tiles::template store<2>(products[2], kTileRowBytes);
  if constexpr (kHas11) Tiles::template store<3>(products[3], kTileRowBytes);
}

/// G += one tile of products at (row, column), as far as it lies within G.
HWY_INLINE void add_products(const float* products, int64_t row, int64_t column, int64_t width,
                             float* gram) {
  const hn::CappedTag<float, kPanel> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t rows = std::min(kPanel, width - row), columns = std::min(kPanel, width - column);
  for (int64_t r = 0; r < rows; ++r, products += kPanel) {
    float* out = gram + (row + r) * width + column;
    int64_t i = 0;
    for (; i + lanes <= columns; i += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, out + i), hn::Load(d, products + i)), d, out + i);
    for (; i < columns; ++i) out[i] += products[i];
  }
}

/// Units of work of a matrix: 2 x 2 tiles, less at the edge, that touch its upper triangle. Each
/// share has successive ones. visit(row panel, column panel).
template <typename Visit>
HWY_INLINE void for_each_unit(int64_t panels, GramShare share, Visit&& visit) {
  const int64_t pairs = (panels + 1) / 2, units = pairs * (pairs + 1) / 2;
  const int64_t first = units * share.index / share.of, last = units * (share.index + 1) / share.of;
  int64_t unit = 0;
  for (int64_t row = 0; row < panels; row += 2) {
    for (int64_t column = row; column < panels; column += 2, ++unit) {
      if (unit >= first && unit < last) visit(row, column);
    }
  }
}

/// G += the share's products of a packed block.
template <class Tiles, int kTerms>
HWY_NOINLINE void add_packed(const PackedBlock<kTerms>& block, GramShare share, int64_t width,
                             float* gram) {
  LeftFactors<kTerms> left;
  HWY_ALIGN float products[4][kTileWords];
  int64_t left_panel = -1;
  for_each_unit(block.panels, share, [&](int64_t row, int64_t column) HWY_ATTR {
    const bool has_second_row = row + 1 < block.panels,
               has_second_column = column + 1 < block.panels;
    if (left_panel != row) {
      left_panel = row;
      for (int64_t r = 0; r < (has_second_row ? 2 : 1); ++r) {
        for (int term = 0; term < kTerms; ++term) {
          for (int64_t step = 0; step < block.steps; ++step)
            transpose_tile(block.tile(term, step, row + r), left.words[r][term][step]);
        }
      }
    }
    const auto add = [&](int tile) HWY_ATTR {
      add_products(products[tile], (row + tile / 2) * kPanel, (column + tile % 2) * kPanel, width,
                   gram);
    };
    if (!has_second_row) {
      multiply<Tiles, 1, 1, true>(left, block, column, products);
      return add(0);
    }
    if (!has_second_column) {
      multiply<Tiles, 2, 1, false>(left, block, column, products);
      return add(0), add(2);
    }
    if (row == column) {
      multiply<Tiles, 2, 2, true>(left, block, column, products);
      return add(0), add(1), add(3);
    }
    multiply<Tiles, 2, 2, false>(left, block, column, products);
    add(0), add(1), add(2), add(3);
  });
}

/// G about `about` becomes G about about + rest, for a share's units: with s the sums about
/// `about`,
///   sum (x - r)(x - r)^T = sum x x^T - r (s - n r)^T - s r^T.
inline void move_shift(const float* rest, const float* sums, float count, GramShare share,
                       int64_t width, float* gram) {
  const int64_t panels = (width + kPanel - 1) / kPanel;
  for_each_unit(panels, share, [&](int64_t row, int64_t column) HWY_ATTR {
    const int64_t rows = std::min(width, (row + 2) * kPanel),
                  columns = std::min(width, (column + 2) * kPanel);
    for (int64_t i = row * kPanel; i < rows; ++i) {
      for (int64_t j = std::max(i, column * kPanel); j < columns; ++j)
        gram[i * width + j] -= rest[i] * (sums[j] - count * rest[j]) + sums[i] * rest[j];
    }
  });
}

/// add_gram about a shift of which kTerms terms are subtracted from z: `about`, padded to whole
/// panels; and then the rest of it.
template <class Tiles, int kTerms, typename In>
HWY_INLINE void add_tokens_about(const HeadTokens& z, const float* about, const float* rest,
                                 GramShare share, float* workspace, float* gram, float* sum) {
  HWY_ALIGN float sums[kAmxWidestHead] = {};
  const int64_t panels = (z.width + kPanel - 1) / kPanel;
  int64_t count = 0;
  Tiles::configure(full_tiles());
  for (int64_t next = 0; next < z.tokens;) {
    const TokenRows<In> rows = take_rows<In>(z, &next);
    const PackedBlock<kTerms> block = {.words = reinterpret_cast<uint32_t*>(workspace),
                                       .panels = panels,
                                       .steps = (rows.count + kStepTokens - 1) / kStepTokens};
    for (int64_t panel = 0; panel < panels; ++panel) {
      const int64_t column = panel * kPanel;
      pack_panel(rows, panel, z.width - column, about + column, block, sums + column);
    }
    add_packed<Tiles>(block, share, z.width, gram);
    count += rows.count;
  }
  Tiles::release();
  const float n = static_cast<float>(count);
  if (std::any_of(rest, rest + z.width, [](float r) { return r != 0; }))
    move_shift(rest, sums, n, share, z.width, gram);
  if (share.index == 0) {
    for (int64_t i = 0; i < z.width; ++i) sum[i] += sums[i] - n * rest[i];
  }
}

/// add_gram for what amx_block_bytes takes.
template <class Tiles>
HWY_INLINE void add_gram_tiles(const HeadTokens& z, const float* shift, GramShare share,
                               float* workspace, float* gram, float* sum) {
  HWY_ALIGN float about[kAmxWidestHead] = {}, rest[kAmxWidestHead] = {};
  std::copy(shift, shift + z.width, about);
  const bool is_shifted = std::any_of(about, about + z.width, [](float c) { return c != 0; });
  if (z.element == Element::kF16 && is_shifted) {
    add_tokens_about<Tiles, 3, hwy::float16_t>(z, about, rest, share, workspace, gram, sum);
  } else if (z.element == Element::kF16) {
    add_tokens_about<Tiles, 2, hwy::float16_t>(z, about, rest, share, workspace, gram, sum);
  } else if (!is_shifted) {
    add_tokens_about<Tiles, 1, hwy::bfloat16_t>(z, about, rest, share, workspace, gram, sum);
  } else {
    // The difference of two bf16 is the sum of two bf16 exactly: the nearest one, and its error.
    for (int64_t i = 0; i < z.width; ++i) {
      about[i] = std::bit_cast<float>((std::bit_cast<uint32_t>(shift[i]) + 0x8000) & kHighHalf);
      rest[i] = shift[i] - about[i];
    }
    add_tokens_about<Tiles, 2, hwy::bfloat16_t>(z, about, rest, share, workspace, gram, sum);
  }
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
