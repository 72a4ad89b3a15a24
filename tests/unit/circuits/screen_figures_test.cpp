#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "headscope/patterns.h"
#include "headscope/screen.h"
#include "tests/support/errors.h"
#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

Screen published(std::optional<int64_t> top_k = {}) {
  return screen_heads(standard_patterns(), test::pythia1b_screen(), 256, ScreenRules::reference(),
                      top_k);
}

// Published breakdown of the first 45; the order is induction, previous-token, duplicate-token,
// first-token, self, local, unclassified.
TEST(PublishedScreen, BreaksTheFirst45Down) {
  const Screen screen = published(45);
  EXPECT_THAT(screen.top_classes, ElementsAre(2, 13, 1, 17, 3, 0, 9));
  const auto golden = test::pythia1b()["selectivity_run"]["class_breakdown_topK"];
  EXPECT_EQ(golden["previous-token"], screen.top_classes[1]);
  EXPECT_EQ(golden["first-token"], screen.top_classes[3]);
  EXPECT_EQ(golden["unclassified"], screen.top_classes[6]);
}

TEST(PublishedScreen, HasThePrecisionOfTheFirst45) {
  std::vector<std::pair<int64_t, int64_t>> found;
  for (const auto& at : published(45).precision) found.emplace_back(at.k, at.specialised);
  EXPECT_THAT(found, ElementsAre(Pair(5, 4), Pair(10, 8), Pair(15, 12), Pair(20, 15), Pair(30, 23),
                                 Pair(45, 36)));
  EXPECT_EQ(published(45).precision.back().precision, .8);
}

TEST(PublishedScreen, FindsTheCircuits) {
  const Screen screen = published();
  EXPECT_THAT(screen.circuits[0].members, ElementsAre(HeadId{4, 4}, HeadId{7, 0}, HeadId{7, 1}));
  EXPECT_THAT(screen.circuits[1].members,
              ElementsAre(HeadId{1, 3}, HeadId{2, 1}, HeadId{2, 3}, HeadId{2, 5}, HeadId{3, 2},
                          HeadId{3, 5}, HeadId{3, 6}, HeadId{6, 3}));
  EXPECT_EQ(screen.circuits[1].threshold, 100);
}

// Without the second condition first-token heads that also look back are among them.
TEST(PublishedScreen, PreviousTokenByClassIsTheReferencesOnly) {
  const Screen screen =
      screen_heads(standard_patterns(), test::pythia1b_screen(), 256, ScreenRules{});
  EXPECT_EQ(screen.circuits[1].members.size(), 19u);
}

TEST(PublishedScreen, CountsSinksBothPublishedWays) {
  const auto sinks = published().sinks.value();
  EXPECT_EQ(sinks.any, 74 / 128.);
  EXPECT_EQ(sinks.by_class, 69 / 128.);
  const auto golden = test::pythia1b()["sink_counts_final_pythia_1b"]["first_token_ge30_any"];
  for (const auto& [layer, heads] : sinks.any_by_layer)
    EXPECT_EQ(heads, golden["per_layer"].at(static_cast<size_t>(layer))) << layer;
  EXPECT_EQ(sinks.any_by_layer.size(), 16u);
  EXPECT_EQ(sinks.mass_measured, 0);
  EXPECT_TRUE(std::isnan(sinks.by_mass));
}

TEST(PublishedScreen, TakesEighteenPercentUnlessTold) {
  const Screen screen = published();
  EXPECT_EQ(screen.top_k, 23);
  EXPECT_EQ(screen.specialised_top, 17 / 128.);
  EXPECT_EQ(screen.specialised, 94 / 128.);
  EXPECT_EQ(screen.precision.back().k, 30);
  EXPECT_EQ(screen.order.size(), 128u);
  const auto golden = test::pythia1b()["k_calibration"];
  for (const auto& [name, model] : golden.items()) {
    if (!model.contains("k_18pct")) continue;
    EXPECT_EQ(default_top_k(model["n_heads"]), model["k_18pct"]) << name;
  }
  EXPECT_EQ(default_top_k(25), 4);  // 4.5 to even
  EXPECT_EQ(default_top_k(1), 1);
  EXPECT_EQ(default_top_k(0), 0);
}

TEST(PublishedScreen, CountsTheHeadsAboveTheCalibratedThresholds) {
  const auto golden = test::pythia1b()["calibration_summary_pythia_1b"];
  const double thresholds[] = {2, golden["null_p99"].get<double>(), 10, 30, 50, 100};
  EXPECT_THAT(heads_above(test::pythia1b_screen(), 0, thresholds),
              ElementsAre(golden["K_above_2x_T_recall"], golden["K_above_null_p99"],
                          golden["K_above_10x"], golden["K_above_30x"],
                          golden["K_above_50x_T_precision"], golden["K_above_100x"]));
}

TEST(PublishedScreen, RefusesMoreHeadsThanAreRanked) {
  EXPECT_THAT(error_of<std::invalid_argument>([] { published(129); }),
              HasSubstr("the first 129 heads by PR integral were asked for, and 128 have one"));
  EXPECT_THROW(published(0), std::invalid_argument);
}

HeadReading head(HeadId id, std::vector<double> selectivities, double integral = kNaN,
                 double sink_mass = kNaN) {
  HeadReading reading;
  reading.id = id;
  reading.pr_integral = integral;
  reading.sink_mass = sink_mass;
  for (const double selectivity : selectivities)
    reading.patterns.push_back({.selectivity = selectivity});
  return reading;
}

std::vector<Pattern> first_token_alone() {
  Pattern pattern;
  pattern.name = "first-token";
  return {pattern};
}

TEST(Screen, ScalesThresholdsUnlessReference) {
  const std::vector heads = {head({0, 0}, {10})};
  const auto scaled = screen_heads(first_token_alone(), heads, 64, ScreenRules{});
  EXPECT_DOUBLE_EQ(scaled.class_threshold, 30 * 63 / 255.);
  EXPECT_EQ(scaled.circuits[0].members.size(), 1u);
  const auto stated = screen_heads(first_token_alone(), heads, 64, ScreenRules::reference());
  EXPECT_EQ(stated.class_threshold, 30);
  EXPECT_THAT(stated.circuits[0].members, IsEmpty());
}

TEST(Screen, RanksByIntegralAndLeavesOutWhatHasNone) {
  const std::vector heads = {head({0, 0}, {1}, 5), head({0, 1}, {1}), head({1, 1}, {40}, 7),
                             head({1, 0}, {40}, 7)};
  const auto screen = screen_heads(first_token_alone(), heads, 256, ScreenRules{}, 2);
  EXPECT_THAT(screen.order, ElementsAre(3, 2, 0));
  EXPECT_THAT(screen.top_classes, ElementsAre(2, 0));
  EXPECT_EQ(screen.specialised_top, .5);
}

TEST(Screen, WithoutIntegralsHasNoFirstHeads) {
  const std::vector heads = {head({0, 0}, {40})};
  const auto screen = screen_heads(first_token_alone(), heads, 256, ScreenRules{});
  EXPECT_EQ(screen.top_k, 0);
  EXPECT_THAT(screen.precision, IsEmpty());
  EXPECT_TRUE(std::isnan(screen.specialised_top));
  EXPECT_EQ(screen.specialised, 1);
}

TEST(Screen, CountsSinksByMassAboveTheFloor) {
  std::vector heads = {head({0, 0}, {1}, kNaN, .29), head({0, 1}, {1}, kNaN, .3),
                       head({1, 0}, {90}), head({1, 1}, {90})};
  heads[2].patterns[0].mass = .8;  // the probe's rows where there is no other figure
  const auto sinks = screen_heads(first_token_alone(), heads, 256, ScreenRules{}).sinks.value();
  EXPECT_EQ(sinks.mass_measured, 3);
  EXPECT_EQ(sinks.by_mass, 2 / 3.);
  EXPECT_EQ(sinks.any, .5);
  EXPECT_THAT(sinks.any_by_layer, ElementsAre(Pair(0, 0), Pair(1, 2)));
}

TEST(Screen, RefusesReadingsOfOtherPatterns) {
  const std::vector heads = {head({3, 2}, {1, 2})};
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [&] { screen_heads(first_token_alone(), heads, 256, ScreenRules{}); }),
              HasSubstr("head 3.2 has readings of 2 patterns, the screen 1"));
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [&] { screen_heads(first_token_alone(), {}, 1, ScreenRules{}); }),
              HasSubstr("context must be at least 2, got 1"));
}

using Labeling = std::vector<std::optional<size_t>>;

TEST(ClassStability, SharesWhatAgrees) {
  const std::vector<Labeling> labelings = {
      {0, 1, std::nullopt, 2}, {0, 1, std::nullopt, 3}, {0, 2, std::nullopt, 3}};
  const auto stability = class_stability(labelings);
  EXPECT_EQ(stability.labelings, 3);
  EXPECT_EQ(stability.heads, 4);
  EXPECT_EQ(stability.unanimous, .5);
  EXPECT_DOUBLE_EQ(stability.pairwise, (3 + 2 + 3) / 12.);
}

TEST(ClassStability, RefusesWhatCannotBeCompared) {
  const std::vector<Labeling> one = {{0}}, different = {{0}, {0, 1}}, none = {{}, {}};
  EXPECT_THAT(error_of<std::invalid_argument>([&] { class_stability(one); }),
              HasSubstr("at least 2 labelings, got 1"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { class_stability(different); }),
              HasSubstr("got 1 and 2"));
  EXPECT_THROW(class_stability(none), std::invalid_argument);
}

}  // namespace
}  // namespace headscope
