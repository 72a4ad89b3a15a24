#include "headscope/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <vector>

#include "headscope/configuration_prior.h"

namespace headscope {
namespace {

using ::testing::HasSubstr;
using Heads = std::vector<HeadId>;
using Values = std::vector<double>;

TEST(Jaccard, IsTheSharedPartOfBothSets) {
  EXPECT_DOUBLE_EQ(jaccard(Heads{{0, 1}, {2, 3}}, Heads{{2, 3}, {0, 2}, {0, 1}}), 2. / 3);
  EXPECT_EQ(jaccard(Heads{{0, 1}}, Heads{{1, 0}}), 0);
  EXPECT_EQ(jaccard(Heads{{0, 1}, {0, 1}}, Heads{{0, 1}}), 1);
}

TEST(Jaccard, OfTwoEmptySetsIsOne) {
  EXPECT_EQ(jaccard(Heads{}, Heads{}), 1);
  EXPECT_EQ(jaccard(Heads{}, Heads{{0, 0}}), 0);
}

/// The mean over all pairs of sets of `a` and `b` out of `heads`, as bit masks.
double mean_jaccard(int a, int b, int heads) {
  double sum = 0, pairs = 0;
  for (unsigned first = 0; first < 1u << heads; ++first)
    for (unsigned second = 0; second < 1u << heads; ++second) {
      if (__builtin_popcount(first) != a || __builtin_popcount(second) != b) continue;
      sum += static_cast<double>(__builtin_popcount(first & second)) /
             __builtin_popcount(first | second);
      ++pairs;
    }
  return sum / pairs;
}

TEST(ExpectedJaccard, IsTheMeanOverAllPairsOfSets) {
  for (const auto& [a, b] : {std::pair{1, 1}, {2, 3}, {3, 3}, {5, 4}, {6, 2}, {0, 3}})
    EXPECT_NEAR(expected_jaccard(a, b, 6), mean_jaccard(a, b, 6), 1e-12) << a << " " << b;
  EXPECT_EQ(expected_jaccard(0, 0, 6), 1);
  EXPECT_THROW(expected_jaccard(7, 1, 6), std::invalid_argument);
}

TEST(Spearman, GoesByRanksAlone) {
  EXPECT_DOUBLE_EQ(spearman(Values{1, 2, 3, 4}, Values{1, 10, 11, 1000}), 1);
  EXPECT_DOUBLE_EQ(spearman(Values{1, 2, 3, 4}, Values{4, 3, 2, 1}), -1);
  // Ranks 1 2 3 4 and 2 1 4 3: 1 - 6 (1 + 1 + 1 + 1) / (4 * 15).
  EXPECT_DOUBLE_EQ(spearman(Values{1, 2, 3, 4}, Values{5, 0, 9, 7}), .6);
}

TEST(Spearman, SharesTheRanksOfEqualValues) {
  // Ranks 1 2.5 2.5 4 and 1 2 3 4: covariance 4.5, variances 4.5 and 5.
  EXPECT_DOUBLE_EQ(spearman(Values{1, 2, 2, 3}, Values{1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5));
}

TEST(Spearman, LeavesOutPairsThatAreNotFinite) {
  EXPECT_DOUBLE_EQ(spearman(Values{1, kNaN, 2, 3, HUGE_VAL}, Values{1, 0, 2, 3, 0}), 1);
}

TEST(Spearman, SaysNothingOfTooLittle) {
  EXPECT_TRUE(std::isnan(spearman(Values{1, 2}, Values{1, 2})));
  EXPECT_TRUE(std::isnan(spearman(Values{1, 1, 1}, Values{1, 2, 3})));
  EXPECT_THROW(spearman(Values{1}, Values{1, 2}), std::invalid_argument);
}

TEST(ConfigurationPrior, GrowsWithTheRootOfTheTokensOfAStep) {
  EXPECT_NEAR(configuration_prior_tokens(1, 1), 501187.2336, 1e-3);
  EXPECT_DOUBLE_EQ(configuration_prior_tokens(16, 64), 32 * configuration_prior_tokens(1, 1));
}

TEST(ConfigurationPrior, NamesWhatIsNoCount) {
  const auto refusal = [](double batch, double context) -> std::string {
    try {
      configuration_prior_tokens(batch, context);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal(0, 64), HasSubstr("batch (sequences of a step) is 0"));
  EXPECT_THAT(refusal(8, kNaN), HasSubstr("context (tokens of a sequence) is nan"));
}

}  // namespace
}  // namespace headscope
