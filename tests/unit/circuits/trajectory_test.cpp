#include "headscope/trajectory.h"

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using test::close;

constexpr double kRelative = 1e-9;

class PublishedHead : public testing::TestWithParam<const char*> {
 protected:
  /// The published trajectory; 10 readings.
  Trajectory trajectory(IntegralAxis axis) const {
    Trajectory trajectory({.axis = axis});
    for (size_t i = 0; i < 10; ++i)
      trajectory.add({golden_.at("trajectory_steps")[i].get<int64_t>(),
                      golden_.at("trajectory_tokens_B")[i].get<double>() * 1e9,
                      head().at("pr")[i].get<double>()});
    return trajectory;
  }
  const nlohmann::ordered_json& head() const { return golden_.at("heads").at(GetParam()); }
  nlohmann::ordered_json golden_ = test::pythia1b();
};

TEST_P(PublishedHead, HasTheReferenceFeatures) {
  const auto features = trajectory(IntegralAxis::kLnTokensClamped1b).features();
  const auto& want = head().at("features");
  EXPECT_PRED3(close, features.integral, want.at("integral").get<double>(), kRelative);
  EXPECT_PRED3(close, features.final_value, want.at("final_pr").get<double>(), kRelative);
  EXPECT_PRED3(close, features.max, want.at("max_pr").get<double>(), kRelative);
  EXPECT_PRED3(close, features.min, want.at("min_pr").get<double>(), kRelative);
  EXPECT_PRED3(close, features.spread, want.at("spread").get<double>(), kRelative);
}

TEST_P(PublishedHead, HasTheUnclampedIntegralOfThePapersFormula) {
  EXPECT_PRED3(close, trajectory(IntegralAxis::kLnTokens).integral(),
               head().at("derived_integral_ln_tokens_trapz_unclamped").get<double>(), kRelative);
}

INSTANTIATE_TEST_SUITE_P(Pythia1b, PublishedHead,
                         testing::Values("L4_H4", "L7_H1", "L3_H5", "L0_H0", "L5_H7", "L1_H7",
                                         "L8_H1"));

TEST(Trajectory, IntegratesOverRawSteps) {
  Trajectory trajectory({.axis = IntegralAxis::kStep});
  trajectory.add({0, kNaN, 3});
  trajectory.add({10, kNaN, 5});
  trajectory.add({30, kNaN, .5});  // below 1 counts as 1
  EXPECT_DOUBLE_EQ(trajectory.integral(), 10 * (2 + 4) / 2. + 20 * (4 + 0) / 2.);
}

TEST(Trajectory, ClampLeavesRunsBelowABillionTokensAtZero) {
  Trajectory trajectory({.axis = IntegralAxis::kLnTokensClamped1b});
  trajectory.add({1, 1e6, 10});
  trajectory.add({2, 9e8, 20});
  EXPECT_EQ(trajectory.integral(), 0);
}

TEST(Trajectory, FloorBoundsTheTokenAxis) {
  Trajectory trajectory({.axis = IntegralAxis::kLnTokens, .floor_tokens = 100});
  trajectory.add({1, 10, 3});
  trajectory.add({2, 50, 3});
  EXPECT_EQ(trajectory.integral(), 0);
  trajectory.add({3, 200, 3});
  EXPECT_DOUBLE_EQ(trajectory.integral(), 2 * (std::log(200) - std::log(100)));
}

TEST(Trajectory, PassesOverReadingsWithoutAPlaceOnTheAxis) {
  Trajectory with, without;
  for (auto* t : {&with, &without}) t->add({1, 100, 3});
  EXPECT_TRUE(with.add({2, kNaN, 50}));
  for (auto* t : {&with, &without}) t->add({3, 1000, 4});
  EXPECT_EQ(with.integral(), without.integral());
  EXPECT_EQ(with.features().max, 50);
  Trajectory from_zero;
  from_zero.add({0, 0, 9});
  from_zero.add({1, 100, 3});
  EXPECT_EQ(from_zero.integral(), 0);
}

TEST(Trajectory, LeavesOutNonFiniteReadings) {
  Trajectory trajectory;
  trajectory.add({1, 10, 2});
  EXPECT_FALSE(trajectory.add({2, 20, kNaN}));
  EXPECT_FALSE(trajectory.add({3, 30, HUGE_VAL}));
  EXPECT_EQ(trajectory.points().size(), 1u);
}

TEST(Trajectory, ReplayedStepsSupersedeToTheBit) {
  Trajectory unbroken, resumed;
  for (int step = 1; step <= 20; ++step) unbroken.add({step, step * 1e3, 2 + std::sin(step)});
  for (int step = 1; step <= 15; ++step) resumed.add({step, step * 1e3, 2 + std::cos(step)});
  for (int step = 1; step <= 20; ++step) resumed.add({step, step * 1e3, 2 + std::sin(step)});
  EXPECT_EQ(resumed.integral(), unbroken.integral());
  EXPECT_EQ(resumed.points().size(), 20u);
}

TEST(Trajectory, RestoredFromItsPointsGivesTheSameBits) {
  Trajectory original;
  for (int step = 1; step <= 50; ++step) original.add({step, step * 7e3, 2 + std::sin(step)});
  Trajectory restored(original.definition());
  for (const auto& point : original.points()) restored.add(point);
  EXPECT_EQ(restored.integral(), original.integral());
}

TEST(Trajectory, AStretchThatCountsStepsAnewSupersedesNothing) {
  Trajectory trajectory({.axis = IntegralAxis::kStep});
  trajectory.add({0, kNaN, 3});
  trajectory.add({10, kNaN, 3});
  trajectory.add({0, kNaN, 5, /*begins_stretch=*/true});
  trajectory.add({10, kNaN, 5});
  EXPECT_EQ(trajectory.integral(), 10 * 2 + 10 * 4);
  trajectory.add({5, kNaN, 5});  // a replay within the second stretch
  EXPECT_EQ(trajectory.integral(), 10 * 2 + 5 * 4);
  trajectory.add({0, kNaN, 9});  // from the second stretch's first reading on
  EXPECT_EQ(trajectory.integral(), 10 * 2);
  EXPECT_EQ(trajectory.points().size(), 3u);
  EXPECT_TRUE(trajectory.points().back().begins_stretch);
}

TEST(Trajectory, AStretchThatGoesOnIsJoined) {
  Trajectory trajectory;
  trajectory.add({0, 1, 3});
  trajectory.add({9, 100, 3});
  trajectory.add({0, 1000, 3, /*begins_stretch=*/true});
  EXPECT_DOUBLE_EQ(trajectory.integral(), 2 * std::log(1000));
}

TEST(Trajectory, NeverRunsBackwards) {
  Trajectory trajectory;
  trajectory.add({1, 100, 3});
  trajectory.add({2, 10, 3});
  EXPECT_EQ(trajectory.integral(), 0);
  trajectory.add({3, 1000, 3});
  EXPECT_DOUBLE_EQ(trajectory.integral(), 2 * std::log(100));
}

TEST(Trajectory, WithoutReadingsHasNoFeatures) {
  const auto features = Trajectory().features();
  EXPECT_EQ(features.integral, 0);
  EXPECT_TRUE(std::isnan(features.final_value) && std::isnan(features.spread));
}

TEST(Trajectory, RefusesAFloorThatIsNoCount) {
  for (const double floor : {0.0, -1.0, std::nan("")})
    EXPECT_THROW(Trajectory({.floor_tokens = floor}), std::invalid_argument) << floor;
}

TEST(IntegralAxis, NamesGoBothWays) {
  for (const auto axis :
       {IntegralAxis::kLnTokens, IntegralAxis::kLnTokensClamped1b, IntegralAxis::kStep})
    EXPECT_EQ(integral_axis_from_string(to_string(axis)), axis);
  EXPECT_THROW(integral_axis_from_string("tokens"), std::invalid_argument);
}

TEST(RankByIntegral, PutsTheLargestFirstAndBreaksTiesById) {
  std::map<HeadId, Trajectory> heads;
  const auto put = [&](HeadId id, double pr) {
    Trajectory trajectory({.axis = IntegralAxis::kStep});
    trajectory.add({0, kNaN, pr});
    trajectory.add({1, kNaN, pr});
    heads[id] = trajectory;
  };
  put({1, 0}, 2);
  put({0, 1}, 2);
  put({2, 2}, 9);
  const auto ranked = rank_by_integral(heads);
  EXPECT_EQ(ranked[0].id, (HeadId{2, 2}));
  EXPECT_EQ(ranked[1].id, (HeadId{0, 1}));
  EXPECT_EQ(ranked[2].id, (HeadId{1, 0}));
  EXPECT_EQ(ranked[2].rank, 3);
}

}  // namespace
}  // namespace headscope
