#include "csrc/measure/simd/gram_amx.h"

#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <random>
#include <vector>

#include "tests/support/numeric/emulated_tiles.h"
#include "tests/support/numeric/gram_targets.h"
#include "tests/support/numeric/simd_targets.h"
#include "tests/unit/measure/gram_amx_emulated.h"
#include "tests/unit/measure/gram_heads.h"

// The AMX kernel on emulated tiles, held to a reference in double; at the end once on real ones.
namespace headscope::simd {
namespace {

Sums run(const AddGram& add_gram, const Head& head, int64_t shares = 1, float start = 0) {
  return run_in(add_gram, head, amx_block_bytes(head.element, head.width), shares, start);
}

// Asked before a test chooses.
const int64_t kBestTarget = testing::simd_targets().front();

class GramAmx : public ::testing::TestWithParam<int64_t> {
 protected:
  static Sums run(const Head& head, int64_t shares = 1, float start = 0) {
    const Sums sums = simd::run(testing::add_gram_emulated, head, shares, start);
    EXPECT_FALSE(testing::EmulatedTiles::is_configured()) << "the tiles were not released";
    return sums;
  }
  /// All heads for the best vectors, fewer for the others, which differ in the packing only.
  static void for_each_head(const std::function<void(Head&)>& visit) {
    GetParam() == kBestTarget ? simd::for_each_head(300, 256, visit)
                              : simd::for_each_head(65, 80, visit);
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
}  // namespace headscope::simd
