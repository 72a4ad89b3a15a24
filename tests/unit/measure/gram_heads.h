#pragma once

#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "csrc/measure/simd/gram.h"
#include "csrc/measure/simd/gram_amx.h"

// Heads of 16-bit outputs in hostile layouts, and the bound that every Gram kernel for them is held
// to.
namespace headscope::simd {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInf = std::numeric_limits<float>::infinity();

/// The nearest bf16, ties away from zero.
inline float to_bf16(float value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x8000) & 0xffff0000u);
}

/// The nearest f16, or a cut to bf16.
inline uint16_t bits_of(Element element, float value) {
  if (element == Element::kBF16) return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (!std::isfinite(value))
    return static_cast<uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
  const int exponent = value == 0 ? -14 : std::max(std::ilogb(value), -14);
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(std::abs(value), 10 - exponent)));
  // Bit 10 of a normal number's mantissa is the carry into the exponent.
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + mantissa));
}

inline double value_of(Element element, uint16_t bits) {
  if (element == Element::kBF16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits >> 15 ? -1 : 1;
  if (exponent == 31) return mantissa ? kNaN : sign * kInf;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

enum class Layout { kContiguous, kHeadView, kWidthMajor, kSpread };

/// One head's outputs in a layout, amid NaN.
struct Head {
  Element element;
  int64_t tokens, width, token_stride, width_stride;
  std::vector<uint16_t> storage;
  std::unique_ptr<bool[]> keep;  // [2 T], every other one counts
  std::vector<float> shift;

  Head(Element element, int64_t tokens, int64_t width, Layout layout)
      : element(element), tokens(tokens), width(width), shift(static_cast<size_t>(width)) {
    token_stride = layout == Layout::kHeadView     ? 3 * width + 1
                   : layout == Layout::kWidthMajor ? 1
                   : layout == Layout::kSpread     ? 2 * width + 3
                                                   : width;
    width_stride = layout == Layout::kWidthMajor ? tokens + 1 : layout == Layout::kSpread ? 2 : 1;
    // Ends with the last element: AddressSanitizer sees what reads past it.
    const int64_t last = (tokens - 1) * token_stride + (width - 1) * width_stride;
    storage.assign(static_cast<size_t>(tokens == 0 ? 1 : last + 2), 0x7fff);
  }

  uint16_t& at(int64_t t, int64_t i) {
    return storage[static_cast<size_t>(1 + t * token_stride + i * width_stride)];
  }
  void set(int64_t t, int64_t i, float value) { at(t, i) = bits_of(element, value); }
  void fill(const std::function<float(int64_t, int64_t)>& value) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < width; ++i) set(t, i, value(t, i));
    }
  }
  void fill_normal(unsigned seed, float mean = 0) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    fill([&](int64_t, int64_t) { return mean + normal(engine); });
  }
  /// Drops every third token and more, and makes them NaN.
  void drop_some() {
    keep = std::make_unique<bool[]>(static_cast<size_t>(2 * tokens + 1));
    for (int64_t t = 0; t < tokens; ++t) {
      keep[static_cast<size_t>(2 * t)] = t % 3 != 1 && (t < 64 || t > 130);
      if (keeps(t)) continue;
      for (int64_t i = 0; i < width; ++i) at(t, i) = 0x7fff;
    }
  }
  bool keeps(int64_t t) const { return keep == nullptr || keep[static_cast<size_t>(2 * t)]; }

  HeadTokens view() const {
    return {.data = storage.data() + 1,
            .element = element,
            .tokens = tokens,
            .width = width,
            .token_stride = token_stride,
            .width_stride = width_stride,
            .keep = keep.get(),
            .keep_stride = 2};
  }
};

struct Sums {
  std::vector<float> gram, sum;  // below the diagonal: zeros
};

using AddGram =
    std::function<void(const HeadTokens&, const float*, GramShare, float*, float*, float*)>;

/// The head's sums by all shares, added to `start`. Nothing but the results and the block may be
/// written, and a block that holds NaN may not be read.
inline Sums run_in(const AddGram& add_gram, const Head& head, int64_t block_bytes,
                   int64_t shares = 1, float start = 0) {
  constexpr size_t kGuard = 64;
  const size_t width = static_cast<size_t>(head.width);
  const size_t words = static_cast<size_t>(block_bytes) / 4;
  const auto workspace = hwy::AllocateAligned<float>(words + kGuard);
  std::vector<float> gram(width * width + kGuard, start), sum(width + kGuard, start);
  for (int64_t share = 0; share < shares; ++share) {
    std::fill_n(workspace.get(), words, kNaN);
    std::fill_n(workspace.get() + words, kGuard, 7.0f);
    add_gram(head.view(), head.shift.data(), {share, shares}, workspace.get(), gram.data(),
             sum.data());
    for (size_t i = 0; i < kGuard; ++i) EXPECT_EQ(workspace[words + i], 7.0f);
  }
  for (size_t i = 0; i < kGuard; ++i) {
    EXPECT_EQ(gram[width * width + i], start);
    EXPECT_EQ(sum[width + i], start);
  }
  gram.resize(width * width);
  sum.resize(width);
  for (size_t i = 0; i < width; ++i)
    std::fill_n(gram.begin() + static_cast<int64_t>(i * width), i, 0.0f);
  return {gram, sum};
}

/// The documented bound against a reference in double. An entry that is not finite there (or beyond
/// f32) must not be finite here, and the other way round.
inline void expect_within_bound(const Sums& got, Head& head) {
  const size_t width = static_cast<size_t>(head.width);
  std::vector<double> want(width * width), magnitude(width * width), want_sum(width),
      sum_magnitude(width);
  std::vector<double> x(width), larger(width);
  for (int64_t t = 0; t < head.tokens; ++t) {
    if (!head.keeps(t)) continue;
    for (size_t i = 0; i < width; ++i) {
      const float c = head.shift[i];
      const double d = head.element == Element::kBF16 ? static_cast<double>(c) - to_bf16(c) : 0;
      x[i] = value_of(head.element, head.at(t, static_cast<int64_t>(i))) - c;
      larger[i] = std::abs(x[i]) + 2 * std::abs(d);
      want_sum[i] += x[i];
      sum_magnitude[i] += larger[i];
      for (size_t j = 0; j <= i; ++j) {
        want[j * width + i] += x[j] * x[i];
        magnitude[j * width + i] += larger[j] * larger[i];
      }
    }
  }
  const double roundings = 64 + static_cast<double>(head.tokens) / 64 + 3;
  int bad = 0;
  const auto expect_near = [&](const char* what, size_t place, float value, double wanted,
                               double size) {
    const bool is_finite = std::abs(wanted) <= std::numeric_limits<float>::max();
    const double error = std::abs(value - wanted);
    if (is_finite ? !(error <= roundings * 0x1p-24 * size) : std::isfinite(value)) {
      if (++bad > 3) return;
      ADD_FAILURE() << what << place << ": " << value << ", not " << wanted << ", off by "
                    << error / size / 0x1p-24 << " eps of " << roundings;
    }
  };
  for (size_t i = 0; i < width * width; ++i)
    expect_near("entry ", i, got.gram[i], want[i], magnitude[i]);
  for (size_t i = 0; i < width; ++i)
    expect_near("sum ", i, got.sum[i], want_sum[i], sum_magnitude[i]);
}

/// Shapes around tiles of 16 columns and 32 tokens, pairs of them and blocks of 64, that AMX takes.
inline void for_each_head(int64_t most_tokens, int64_t widest,
                          const std::function<void(Head&)>& visit) {
  int index = 0;
  for (const Element element : {Element::kBF16, Element::kF16}) {
    for (const int64_t width : {1, 15, 16, 17, 31, 33, 64, 80, 127, 128, 200, 256}) {
      if (width > widest || amx_block_bytes(element, width) == 0) continue;
      for (const int64_t tokens : {0, 1, 2, 31, 33, 64, 65, 300}) {
        if (tokens > most_tokens) continue;
        const Layout layout = static_cast<Layout>(index++ % 4);
        Head head(element, tokens, width, layout);
        SCOPED_TRACE("f16 " + std::to_string(element == Element::kF16) + ", T " +
                     std::to_string(tokens) + ", D " + std::to_string(width) + ", layout " +
                     std::to_string(static_cast<int>(layout)));
        head.fill_normal(static_cast<unsigned>(index), 0.3f);
        visit(head);
      }
    }
  }
}

}  // namespace headscope::simd
