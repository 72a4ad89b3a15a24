#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <string>

#include "tests/support/numeric/simd_targets.h"
#include "tests/unit/measure/gram_heads.h"
#include "tests/unit/measure/gram_pairs_plain.h"

// bf16 outputs multiplied two tokens at a time: on all vectors by way of f32, and by the
// instruction where the CPU has it.
namespace headscope::simd {
namespace {

Sums run_by(const AddGram& add_gram, const Head& head, int64_t shares = 1, float start = 0) {
  return run_in(add_gram, head, gram_workspace_bytes(head.width, sizeof(float)), shares, start);
}

Sums run_pairs(const Head& head, int64_t shares = 1, float start = 0) {
  return run_by(testing::add_gram_pairs, head, shares, start);
}

void for_each_bf16_head(const std::function<void(Head&)>& visit) {
  for_each_head(300, 256, [&](Head& head) {
    if (head.element == Element::kBF16) visit(head);
  });
}

class GramPairs : public ::testing::TestWithParam<int64_t> {
  testing::WithSimdTarget target_{GetParam()};
};

TEST_P(GramPairs, MatchTheReference) {
  for_each_bf16_head([](Head& head) { expect_within_bound(run_pairs(head), head); });
}

TEST_P(GramPairs, LeaveOutWhatIsNotKept) {
  for_each_bf16_head([](Head& head) {
    head.drop_some();
    expect_within_bound(run_pairs(head), head);
  });
}

TEST_P(GramPairs, AreExactOnSmallIntegersAndAddToWhatIsThere) {
  for (const int64_t width : {9, 64, 65}) {
    Head head(Element::kBF16, 65, width, Layout::kHeadView);
    std::mt19937 engine(7);
    head.fill([&](int64_t, int64_t) {
      return static_cast<float>(std::uniform_int_distribution<int>(-8, 8)(engine));
    });
    const Sums got = run_pairs(head, 1, 5);
    for (int64_t i = 0; i < width; ++i) {
      double sum = 5;
      for (int64_t t = 0; t < 65; ++t) sum += value_of(Element::kBF16, head.at(t, i));
      EXPECT_EQ(got.sum[static_cast<size_t>(i)], sum);
      for (int64_t j = i; j < width; ++j) {
        double want = 5;
        for (int64_t t = 0; t < 65; ++t)
          want += value_of(Element::kBF16, head.at(t, i)) * value_of(Element::kBF16, head.at(t, j));
        EXPECT_EQ(got.gram[static_cast<size_t>(i * width + j)], want) << i << ", " << j;
      }
    }
  }
}

TEST_P(GramPairs, AreTheSameBitForBitForAnyNumberOfShares) {
  for (const int64_t width : {1, 33, 64, 80, 128}) {
    Head head(Element::kBF16, 131, width, Layout::kHeadView);
    head.fill_normal(8);
    const Sums want = run_pairs(head);
    for (const int64_t shares : {2, 3, 40}) {
      const Sums got = run_pairs(head, shares);
      EXPECT_EQ(got.gram, want.gram) << shares << " shares of " << width;
      EXPECT_EQ(got.sum, want.sum) << shares << " shares of " << width;
    }
  }
}

TEST_P(GramPairs, KeepWhatIsNotFiniteToItsColumn) {
  for (const uint16_t bits :
       {uint16_t{0x7f80}, uint16_t{0xff80}, uint16_t{0x7f81}, uint16_t{0x7fff}}) {
    for (const int64_t token : {6, 7, 40}) {  // either of a pair, and one alone
      Head head(Element::kBF16, 41, 34, Layout::kContiguous);
      head.fill_normal(9);
      head.at(token, 5) = bits;
      expect_within_bound(run_pairs(head), head);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, GramPairs, ::testing::ValuesIn(testing::simd_targets()),
                         [](const auto& info) { return testing::target_name(info.param); });

TEST(GramPairsHardware, GivesTheBitsOfTheOthers) {
  if (const char* missing = token_pairs_missing()) GTEST_SKIP() << missing;
  const AddGram add = [](const HeadTokens& z, const float* shift, const auto&... rest) {
    EXPECT_TRUE(takes_token_pairs(z, shift));
    add_gram(z, shift, rest...);
  };
  for_each_bf16_head([&](Head& head) {
    head.drop_some();
    const Sums got = run_by(add, head, 2), want = run_pairs(head);
    EXPECT_EQ(got.gram, want.gram);
    EXPECT_EQ(got.sum, want.sum);
  });
}

TEST(GramPairsHardware, TakesWhatIsBelowTheNormalRangeAsZero) {
  if (const char* missing = token_pairs_missing()) GTEST_SKIP() << missing;
  Head head(Element::kBF16, 40, 18, Layout::kContiguous);
  head.fill([](int64_t t, int64_t i) { return i == 1 ? 0x1p-130f : static_cast<float>(t); });
  const Sums got = run_by([](const auto&... arguments) { add_gram(arguments...); }, head);
  EXPECT_EQ(got.gram[1], 0.0f);
  EXPECT_EQ(got.gram[19], 0.0f);
  EXPECT_EQ(got.sum[1], 0.0f);
  EXPECT_EQ(got.gram[2], got.gram[0]);
}

TEST(GramPairsHardware, IsLeftAloneWhereItWouldLoseSomethingOrIsNotAllowed) {
  const auto takes = [](Element element, float shift) {
    Head head(element, 4, 3, Layout::kContiguous);
    head.shift[2] = shift;
    return takes_token_pairs(head.view(), head.shift.data());
  };
  EXPECT_EQ(takes(Element::kBF16, 0), token_pairs_missing() == nullptr);
  EXPECT_FALSE(takes(Element::kBF16, 0x1p-149f));
  EXPECT_FALSE(takes(Element::kBF16, kNaN));
  EXPECT_FALSE(takes(Element::kF16, 0));
  {
    const testing::WithSimdTarget other(testing::simd_targets().back());
    EXPECT_FALSE(takes(Element::kBF16, 0));
  }
  allow_token_pairs_for_test(false);
  EXPECT_FALSE(takes(Element::kBF16, 0));
  allow_token_pairs_for_test(true);
}

}  // namespace
}  // namespace headscope::simd
