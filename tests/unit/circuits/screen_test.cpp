#include "headscope/screen.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

namespace headscope {
namespace {

HeadReading head(HeadId id, std::vector<double> selectivities, double mass = kNaN) {
  HeadReading reading;
  reading.id = id;
  for (const double selectivity : selectivities)
    reading.patterns.push_back({.selectivity = selectivity, .mass = mass});
  return reading;
}

TEST(ScaledThreshold, KeepsTheAttentionMass) {
  EXPECT_EQ(scaled_threshold(50, 256), 50);
  EXPECT_DOUBLE_EQ(scaled_threshold(50, 64), 50 * 63 / 255.);
}

TEST(BestPattern, IsTheLargestAtOrAboveTheThreshold) {
  EXPECT_EQ(best_pattern(head({}, {127, 1, 143}).patterns, 30), 2u);
  EXPECT_EQ(best_pattern(head({}, {29.9, 1}).patterns, 30), std::nullopt);
  EXPECT_EQ(best_pattern(head({}, {30, 1}).patterns, 30), 0u);
}

TEST(BestPattern, GivesTiesToTheEarlierAndNothingToNaN) {
  EXPECT_EQ(best_pattern(head({}, {1, 40, 40}).patterns, 30), 1u);
  EXPECT_EQ(best_pattern(head({}, {kNaN, 40}).patterns, 30), 1u);
  EXPECT_EQ(best_pattern(head({}, {kNaN}).patterns, 30), std::nullopt);
}

TEST(CircuitMembers, CountsAHeadWhateverItsClass) {
  const std::vector heads = {head({7, 1}, {127, 143}), head({4, 4}, {181, 85}),
                             head({5, 7}, {49.74, 1})};
  EXPECT_EQ(circuit_members(heads, 0, 50, .1), (std::vector<HeadId>{{4, 4}, {7, 1}}));
}

TEST(CircuitMembers, NeedsTheMassWhereItWasMeasured) {
  const std::vector heads = {head({0, 0}, {60}, .09), head({0, 1}, {60}, .1),
                             head({0, 2}, {kNaN}, .5)};
  EXPECT_EQ(circuit_members(heads, 0, 50, .1), (std::vector<HeadId>{{0, 1}}));
}

TEST(CircuitMembers, RefusesAPatternThatIsNotThere) {
  const std::vector heads = {head({0, 0}, {60})};
  EXPECT_THROW(circuit_members(heads, 1, 50, .1), std::invalid_argument);
}

TEST(PatternShares, TellAnyFromClass) {
  const std::vector heads = {head({0, 0}, {181, 85}), head({0, 1}, {1, 85}), head({0, 2}, {1, 1}),
                             head({0, 3}, {1, 90})};
  const auto shares = pattern_shares(heads, 1, 30);
  EXPECT_EQ(shares.any, .75);
  EXPECT_EQ(shares.by_class, .5);
  EXPECT_TRUE(std::isnan(pattern_shares({}, 0, 30).any));
}

}  // namespace
}  // namespace headscope
