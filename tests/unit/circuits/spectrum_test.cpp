#include "headscope/spectrum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using test::close;

std::vector<double> squares(std::vector<double> values) {
  for (double& value : values) value *= value;
  return values;
}

TEST(ParticipationRatio, MatchesTheReferenceCases) {
  const auto golden = test::pythia1b().at("pr_unit_cases");
  EXPECT_PRED3(close, participation_ratio(squares({3, 2, 1, .5})),
               golden.at("singular_values_3_2_1_0.5").get<double>(), 1e-15);
  EXPECT_PRED3(close, participation_ratio(squares({2, 2, 2, 2})),
               golden.at("four_equal").get<double>(), 1e-15);
  EXPECT_PRED3(close, participation_ratio(squares({7, 0, 0})), golden.at("rank_one").get<double>(),
               1e-15);
  EXPECT_EQ(participation_ratio(std::vector<double>(4, 0.0)), golden.at("all_zero").get<double>());
}

TEST(ParticipationRatio, IgnoresTheOrder) {
  EXPECT_DOUBLE_EQ(participation_ratio(squares({1, 3, .5, 2})),
                   participation_ratio(squares({3, 2, 1, .5})));
}

TEST(ParticipationRatio, CountsNegativeRoundingAsZero) {
  EXPECT_EQ(participation_ratio(std::vector{4.0, 1.0, -1e-9}),
            participation_ratio(std::vector{4.0, 1.0, 0.0}));
  EXPECT_EQ(participation_ratio_quadratic(std::vector{4.0, 1.0, -1e-9}),
            participation_ratio_quadratic(std::vector{4.0, 1.0, 0.0}));
}

TEST(ParticipationRatio, IsNaNWithoutAFiniteSpectrum) {
  for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    EXPECT_TRUE(std::isnan(participation_ratio(std::vector{1.0, bad})));
    EXPECT_TRUE(std::isnan(participation_ratio_quadratic(std::vector{1.0, bad})));
  }
  EXPECT_TRUE(std::isnan(participation_ratio({})));
  EXPECT_TRUE(std::isnan(participation_ratio_quadratic({})));
}

TEST(ParticipationRatioQuadratic, IsSumSquaredOverSumOfSquares) {
  EXPECT_DOUBLE_EQ(participation_ratio_quadratic(std::vector{9.0, 4.0, 1.0, .25}),
                   14.25 * 14.25 / (81 + 16 + 1 + .0625));
  EXPECT_EQ(participation_ratio_quadratic(std::vector<double>(3, 0.0)), 1);
}

TEST(ParticipationRatioQuadratic, HoldsAtTheEndsOfDouble) {
  EXPECT_EQ(participation_ratio_quadratic(std::vector(3, 1e300)), 3);
  EXPECT_EQ(participation_ratio_quadratic(std::vector(3, 1e-300)), 3);
}

}  // namespace
}  // namespace headscope
