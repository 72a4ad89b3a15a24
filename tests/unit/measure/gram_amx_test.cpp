#include "csrc/measure/cpu/gram_amx.h"

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

#include "tests/support/emulated_tiles.h"
#include "tests/support/gram_targets.h"
#include "tests/support/simd_targets.h"
#include "tests/unit/measure/gram_amx_emulated.h"

// The AMX kernel on emulated tiles, held to a reference in double; at the end once on real ones.
namespace headscope::cpu {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// The nearest bf16, ties away from zero.
float to_bf16(float value) {
  return std::bit_cast<float>((std::bit_cast<uint32_t>(value) + 0x8000) & 0xffff0000u);
}

/// The nearest f16, or a cut to bf16.
uint16_t bits_of(Element element, float value) {
  if (element == Element::kBF16) return static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
  const int sign = std::signbit(value) ? 0x8000 : 0;
  if (!std::isfinite(value))
    return static_cast<uint16_t>(sign | (std::isnan(value) ? 0x7e00 : 0x7c00));
  const int exponent = value == 0 ? -14 : std::max(std::ilogb(value), -14);
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(std::abs(value), 10 - exponent)));
  // Bit 10 of a normal number's mantissa is the carry into the exponent.
  return static_cast<uint16_t>(sign | (((exponent + 14) << 10) + mantissa));
}

double value_of(Element element, uint16_t bits) {
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

/// The head's sums by all shares, added to `start`. Nothing but the results may be written, and a
/// workspace that holds NaN may not be read.
Sums run(const AddGram& add_gram, const Head& head, int64_t shares = 1, float start = 0) {
  constexpr size_t kGuard = 64;
  const size_t width = static_cast<size_t>(head.width);
  const size_t words = static_cast<size_t>(amx_block_bytes(head.element, head.width)) / 4;
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
void expect_within_bound(const Sums& got, Head& head) {
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

/// Shapes around tiles of 16 columns and 32 tokens, pairs of them and blocks of 64.
void for_each_head(int64_t most_tokens, int64_t widest, const std::function<void(Head&)>& visit) {
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

// Asked before a test chooses.
const int64_t kBestTarget = testing::simd_targets().front();

class GramAmx : public ::testing::TestWithParam<int64_t> {
 protected:
  static Sums run(const Head& head, int64_t shares = 1, float start = 0) {
    const Sums sums = cpu::run(testing::add_gram_emulated, head, shares, start);
    EXPECT_FALSE(testing::EmulatedTiles::is_configured()) << "the tiles were not released";
    return sums;
  }
  /// All heads for the best vectors, fewer for the others, which differ in the packing only.
  static void for_each_head(const std::function<void(Head&)>& visit) {
    GetParam() == kBestTarget ? cpu::for_each_head(300, 256, visit)
                              : cpu::for_each_head(65, 80, visit);
  }
  testing::WithSimdTarget target_{GetParam()};
};

TEST_P(GramAmx, MatchesTheReferenceWithoutAShift) {
  for_each_head([](Head& head) { expect_within_bound(run(head), head); });
}

TEST_P(GramAmx, MatchesTheReferenceAboutAShift) {
  for_each_head([](Head& head) {
    std::mt19937 engine(5);
    for (float& c : head.shift) c = std::normal_distribution<float>(0.3f)(engine);
    expect_within_bound(run(head), head);
  });
}

TEST_P(GramAmx, LeavesOutWhatIsNotKept) {
  for_each_head([](Head& head) {
    head.drop_some();
    head.shift[0] = 0.3f;
    expect_within_bound(run(head), head);
  });
}

// Terms that a random input would not miss: each about as large as it can be, in every token.
TEST_P(GramAmx, KeepsTheTermsThatTheBoundNeeds) {
  constexpr float kSecond = 0x1.fcp-9f, kThird = 0x1.fcp-17f;
  for (const Element element : {Element::kBF16, Element::kF16}) {
    for (const float c : {-kSecond, -(kSecond + kThird), kSecond, kSecond - kThird}) {
      Head head(element, 65, 18, Layout::kContiguous);
      head.fill([](int64_t, int64_t) { return 1.0f; });
      head.shift.assign(18, c);
      expect_within_bound(run(head), head);
    }
  }
  // Without a shift f16 has two terms.
  Head head(Element::kF16, 65, 18, Layout::kContiguous);
  head.fill([](int64_t, int64_t) { return 1 + 0x1.cp-9f; });
  expect_within_bound(run(head), head);
}

TEST_P(GramAmx, IsAccurateAboutAMeanFarFromZero) {
  for (const Element element : {Element::kBF16, Element::kF16}) {
    for (const float mean : {100.0f, -1000.0f}) {
      Head head(element, 300, 33, Layout::kHeadView);
      head.fill_normal(3, mean);
      head.shift.assign(33, mean + 0.7f);
      expect_within_bound(run(head), head);
    }
  }
}

TEST_P(GramAmx, TakesShiftsThatDwarfTheActivations) {
  for (const Element element : {Element::kBF16, Element::kF16}) {
    for (const float c : {1e18f, -3e18f, 1e-20f, 1e-39f}) {
      Head head(element, 33, 20, Layout::kContiguous);
      head.fill_normal(4);
      head.shift[3] = c;
      head.shift[17] = -c;
      expect_within_bound(run(head), head);
    }
  }
}

TEST_P(GramAmx, IsExactOnSmallIntegers) {
  for (const Element element : {Element::kBF16, Element::kF16}) {
    // 257 is no bf16: G is moved from 256 or 258 to there.
    for (const float c : {0.0f, 3.0f, 257.0f, -257.0f}) {
      for (const int64_t width : {9, 64, 65}) {
        Head head(element, 65, width, Layout::kHeadView);
        std::mt19937 engine(7);
        head.fill([&](int64_t, int64_t) {
          return static_cast<float>(std::uniform_int_distribution<int>(-8, 8)(engine));
        });
        head.shift.assign(static_cast<size_t>(width), c);
        const Sums got = run(head, 1, 5);
        for (int64_t i = 0; i < width; ++i) {
          double sum = 5;
          for (int64_t t = 0; t < 65; ++t) sum += value_of(element, head.at(t, i)) - c;
          EXPECT_EQ(got.sum[static_cast<size_t>(i)], sum);
          for (int64_t j = i; j < width; ++j) {
            double want = 5;
            for (int64_t t = 0; t < 65; ++t)
              want +=
                  (value_of(element, head.at(t, i)) - c) * (value_of(element, head.at(t, j)) - c);
            EXPECT_EQ(got.gram[static_cast<size_t>(i * width + j)], want) << i << ", " << j;
          }
        }
      }
    }
  }
}

TEST_P(GramAmx, IsTheSameBitForBitForAnyNumberOfShares) {
  for (const int64_t width : {1, 33, 64, 80, 128}) {
    Head head(Element::kBF16, 130, width, Layout::kHeadView);
    head.fill_normal(8);
    for (float& c : head.shift) c = 0.123f;
    const Sums want = run(head);
    for (const int64_t shares : {2, 3, 4, 5, 40}) {
      const Sums got = run(head, shares);
      EXPECT_EQ(got.gram, want.gram) << shares << " shares of " << width;
      EXPECT_EQ(got.sum, want.sum) << shares << " shares of " << width;
    }
  }
}

TEST_P(GramAmx, KeepsWhatIsNotFiniteToItsColumn) {
  for (const Element element : {Element::kBF16, Element::kF16}) {
    // Also the NaN whose bits are all set, and one that is signalling.
    const uint16_t infinity = bits_of(element, kInf);
    for (const uint16_t bits :
         {infinity, static_cast<uint16_t>(infinity | 0x8000), static_cast<uint16_t>(infinity | 1),
          uint16_t{0x7fff}, uint16_t{0xffff}}) {
      for (const float c : {0.0f, 0.3f}) {
        for (const int64_t token : {6, 7}) {  // either of a pair
          Head head(element, 40, 34, Layout::kContiguous);
          head.fill_normal(9);
          head.shift.assign(34, c);
          head.at(token, 5) = bits;
          expect_within_bound(run(head), head);
        }
      }
    }
    for (const float c : {kInf, -kInf, kNaN, std::bit_cast<float>(0x7fffffffu)}) {
      Head head(element, 40, 34, Layout::kContiguous);
      head.fill_normal(10);
      head.shift[20] = c;
      expect_within_bound(run(head), head);
    }
  }
}

TEST_P(GramAmx, TakesTermsBelowTheNormalRangeAsZero) {
  Head head(Element::kBF16, 40, 3, Layout::kContiguous);
  head.fill([](int64_t t, int64_t i) { return i == 1 ? 0x1p-130f : static_cast<float>(t); });
  const Sums got = run(head);
  EXPECT_EQ(got.gram[1], 0.0f);
  EXPECT_EQ(got.gram[4], 0.0f);
  EXPECT_EQ(got.gram[2], got.gram[0]);
  EXPECT_EQ(got.sum[1], 40 * 0x1p-130f);

  // What a term cuts off of the later token of a pair may not reach the earlier one.
  Head zeros(Element::kF16, 40, 3, Layout::kContiguous);
  zeros.fill([](int64_t, int64_t i) { return i == 1 ? 0.0f : 1.0f; });
  zeros.shift[1] = std::bit_cast<float>(0x00007fffu);
  EXPECT_EQ(run(zeros).gram, (std::vector<float>{40, 0, 40, 0, 0, 0, 0, 0, 40}));
}

INSTANTIATE_TEST_SUITE_P(Targets, GramAmx, ::testing::ValuesIn(testing::simd_targets()),
                         [](const auto& info) { return testing::target_name(info.param); });

TEST(GramAmxBlock, FitsTheWorkspaceOrIsNotTaken) {
  for (int64_t width = 1; width < 600; ++width) {
    const int64_t workspace = gram_workspace_bytes(width, sizeof(float));
    EXPECT_LE(workspace, 64 << 10);
    EXPECT_EQ(amx_block_bytes(Element::kF32, width), 0);
    EXPECT_EQ(amx_block_bytes(Element::kF64, width), 0);
    EXPECT_LE(amx_block_bytes(Element::kBF16, width), workspace);
    EXPECT_LE(amx_block_bytes(Element::kF16, width), workspace);
  }
  EXPECT_GT(amx_block_bytes(Element::kBF16, 256), 0);
  EXPECT_GT(amx_block_bytes(Element::kF16, 128), 0);
}

TEST(GramAmxHardware, MatchesTheReference) {
  if (const char* missing = testing::missing_for(testing::kAmxTarget)) GTEST_SKIP() << missing;
  const auto add_gram = [](const auto&... arguments) { EXPECT_TRUE(add_gram_amx(arguments...)); };
  for_each_head(300, 256, [&](Head& head) {
    expect_within_bound(run(add_gram, head, 2), head);
    for (float& c : head.shift) c = 0.123f;
    head.drop_some();
    expect_within_bound(run(add_gram, head), head);
  });
}

TEST(GramAmxHardware, IsLeftAloneWhereItIsMissingOrNotAllowed) {
  Head head(Element::kBF16, 4, 3, Layout::kContiguous);
  head.fill_normal(11);
  const auto is_taken = [&] {
    float workspace[16] = {}, gram[9] = {}, sum[3] = {};
    return add_gram_amx(head.view(), head.shift.data(), {}, workspace, gram, sum);
  };
  allow_amx_for_test(false);
  EXPECT_FALSE(is_taken());
  allow_amx_for_test(true);
  if (amx_missing() != nullptr) {
    EXPECT_FALSE(is_taken());
  }
}

}  // namespace
}  // namespace headscope::cpu
