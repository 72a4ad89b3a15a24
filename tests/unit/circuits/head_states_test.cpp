// The head level of docs/math.md section 6, one row a test.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/circuits/tracked_run.h"

namespace headscope {
namespace {

using test::told;
using test::TrackedRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using enum CircuitState;

TEST(HeadStates, DormantToEmergingOnTwoProbesInARow) {
  TrackedRun run;
  EXPECT_THAT(told(run.probes({1, 2, 1, 2, 2.5}), true), ElementsAre("emerging@50"));
  EXPECT_EQ(run.head(), kEmerging);
}

TEST(HeadStates, EmergingToDormantOnTwoProbesThatFail) {
  TrackedRun run;
  run.probes({3, 3});
  EXPECT_THAT(told(run.probes({1, 3, 1, 1}), true), ElementsAre("dormant@60"));
  EXPECT_EQ(run.head(), kDormant);
}

TEST(HeadStates, EmergingToFormedOnTwoProbesInARow) {
  TrackedRun run;
  run.probes({3, 3});
  EXPECT_THAT(told(run.probes({50, 49, 50, 50}), true), ElementsAre("formed@60"));
}

// A head that only likes near keys gives a position pattern enough attention; its test says no.
TEST(HeadStates, WhatItsOwnTestDeniesDoesNotForm) {
  TrackedRun run;
  const auto tested = [](double z) {
    NullTestResult test;
    test.z = {z, 0};
    test.excess = {z, 0};
    test.beats = {z > 4, false};
    test.significant = z > 4;
    test.critical_z = 4;
    return std::vector<PatternNulls>{{.margin = test, .mass = {}}, {}};
  };
  run.nulls = tested(1);
  run.probes({60, 60, 60});
  EXPECT_EQ(run.head(), kDormant);
  // Probes without a test do not lift what the last one said.
  run.nulls = std::vector<PatternNulls>(2);
  run.probes({60, 60, 60});
  EXPECT_EQ(run.head(), kDormant);
  TrackedRun restored;
  restored.tracker.load(run.tracker.save());
  restored.nulls = run.nulls;
  restored.step = run.step;
  restored.probes({60, 60, 60});
  EXPECT_EQ(restored.head(), kDormant);
  run.nulls = tested(9);
  run.probes({60, 60});
  EXPECT_EQ(run.head(), kFormed);
  // Once formed it leaves by its attention alone.
  run.nulls = tested(1);
  run.probes({60, 60, 60});
  EXPECT_EQ(run.head(), kFormed);
}

TEST(HeadStates, AJumpIsEmergingAndFormedAtOnce) {
  TrackedRun run;
  EXPECT_THAT(told(run.probes({1, 60, 60}), true), ElementsAre("emerging@30", "formed@30"));
}

TEST(HeadStates, FormedHoldsAboveHalfTheThreshold) {
  TrackedRun run;
  run.probes({60, 60});
  EXPECT_THAT(run.probes({25, 30, 25, 24, 26, 24, 26}), IsEmpty());
  EXPECT_EQ(run.head(), kFormed);
}

TEST(HeadStates, FormedToLostOnTwoProbesBelowHalf) {
  TrackedRun run;
  run.probes({60, 60});
  EXPECT_THAT(told(run.probes({24, 24}), true), ElementsAre("lost@40"));
  EXPECT_EQ(run.head(), kLost);
}

TEST(HeadStates, LostToEmergingAndFormedAnew) {
  TrackedRun run;
  run.probes({60, 60, 1, 1});
  EXPECT_THAT(told(run.probes({1, 3, 3, 60, 60}), true), ElementsAre("emerging@70", "formed@90"));
}

TEST(HeadStates, AHeadThatStaysAboveTwoAfterALossEmergesAfterTwoFreshProbes) {
  TrackedRun run;
  run.probes({60, 60, 10, 10});
  EXPECT_THAT(told(run.probes({10, 10}), true), ElementsAre("emerging@60"));
}

TEST(HeadStates, FormedNeedsTheMassWhereItIsMeasured) {
  TrackedRun run;
  run.heads[0].patterns[0].mass = .09;
  run.probes({60, 60, 60});
  EXPECT_EQ(run.head(), kEmerging);
  run.heads[0].patterns[0].mass = .1;
  run.probes({60, 60});
  EXPECT_EQ(run.head(), kFormed);
}

TEST(HeadStates, FormedIsLostBelowHalfTheMassFloor) {
  TrackedRun run;
  run.heads[0].patterns[0].mass = .5;
  run.probes({60, 60});
  run.heads[0].patterns[0].mass = .06;
  EXPECT_THAT(run.probes({60, 60}), IsEmpty());
  run.heads[0].patterns[0].mass = .04;
  EXPECT_THAT(told(run.probes({60, 60}), true), ElementsAre("lost@60"));
}

TEST(HeadStates, NaNNeitherAdvancesNorBreaksAStreak) {
  TrackedRun run;
  EXPECT_THAT(told(run.probes({60, kNaN, kNaN}), true), IsEmpty());
  EXPECT_THAT(told(run.probes({60}), true), ElementsAre("emerging@40", "formed@40"));
  EXPECT_THAT(told(run.probes({1, kNaN}), true), IsEmpty());
  EXPECT_THAT(told(run.probes({1}), true), ElementsAre("lost@70"));
}

TEST(HeadStates, AReadingThatIsNotFiniteHoldsWhateverItsFigures) {
  TrackedRun run;
  run.heads[0].finite = false;
  EXPECT_THAT(run.probes({60, 60, 60}), IsEmpty());
}

TEST(HeadStates, ThresholdScalesToTheContextAtEqualMass) {
  CircuitTracker tracker(test::two_patterns(), 64);
  EXPECT_DOUBLE_EQ(tracker.formed_threshold(0), 50 * 63 / 255.);
  CircuitRules unscaled;
  unscaled.scale_to_context = false;
  EXPECT_EQ(CircuitTracker(test::two_patterns(), 64, unscaled).formed_threshold(0), 50);
}

TEST(HeadStates, ReferenceRulesTakeTheFirstProbeWithoutHysteresis) {
  TrackedRun run(CircuitRules::reference());
  EXPECT_THAT(told(run.probes({1, 2, 50, 49, 1, 50}), true),
              ElementsAre("emerging@20", "formed@30", "lost@40", "emerging@60", "formed@60"));
}

TEST(HeadStates, AHeadFormedElsewhereIsConvertedNotLost) {
  TrackedRun run;
  run.probes({60, 60});
  run.heads[0].patterns[1].selectivity = 40;
  run.probe(10);
  const auto events = run.probe(10);
  EXPECT_THAT(told(events, true), ElementsAre("emerging@40", "formed@40", "converted@40"));
  EXPECT_EQ(run.head(0, 0), kLost);
  EXPECT_EQ(run.head(0, 1), kFormed);
  const auto& converted = events[2];
  EXPECT_EQ(converted.pattern, "induction");
  EXPECT_EQ(converted.figures.at("other_selectivity"), 40);
  EXPECT_THAT(converted.rule, HasSubstr("formed in self"));
}

// A run that was taken back to an earlier step: what came later has a lower step.
TEST(HeadStates, ConvertedGoesByTheOrderOfProbesWhereStepsGoBack) {
  TrackedRun run;
  run.at(1000);
  run.probes({60, 60});
  run.heads[0].patterns[1].selectivity = 40;
  run.step = 0;
  run.probe(60);
  run.probe(60);  // formed in the other pattern, at a lower step
  ASSERT_EQ(run.head(0, 1), kFormed);
  EXPECT_THAT(told(run.probes({10, 10}), true), ElementsAre("converted@40"));
}

TEST(HeadStates, ANewStretchKeepsStatesAndBreaksStreaks) {
  TrackedRun run;
  run.probes({60, 60});
  run.heads[1].patterns[0].selectivity = 60;  // head 1 has one probe of its streak
  run.at(30);
  EXPECT_THAT(run.at(10), IsEmpty());
  EXPECT_EQ(run.head(0), kFormed);
  EXPECT_EQ(run.head(1), kDormant);
  const auto events = run.at(20);
  EXPECT_EQ(run.head(1), kFormed);
  EXPECT_EQ(events.front().figures.at("first_step"), 10);
  EXPECT_EQ(events.front().figures.at("first_step_after"), -1);
  EXPECT_EQ(events.front().figures.at("stretch"), 1);
}

TEST(HeadStates, AStretchCanBeginWithoutTheStepGoingBack) {
  TrackedRun run;
  run.probe(60);
  run.tracker.update({.step = 20, .heads = run.heads, .nulls = {}, .new_stretch = true});
  EXPECT_EQ(run.head(), kDormant);
}

TEST(HeadStates, AnEventTellsItsFiguresAndRule) {
  TrackedRun run;
  run.heads[0].patterns[0].mass = .4;
  run.heads[0].patterns[0].margin = 1.5;
  const auto events = run.probes({1, 60, 70});
  const auto& formed = events[1];
  EXPECT_EQ(formed.kind, "formed");
  EXPECT_EQ(formed.step, 30);
  EXPECT_EQ(formed.tokens, 3000);
  EXPECT_EQ(formed.wall_time, 1030);
  EXPECT_EQ(formed.previous_probe_step, 20);
  EXPECT_THAT(formed.heads, ElementsAre(HeadId{0, 0}));
  const std::map<std::string, double> want = {{"first_step", 20},
                                              {"first_step_after", 10},
                                              {"margin", 1.5},
                                              {"mass", .4},
                                              {"probe", 3},
                                              {"selectivity", 70},
                                              {"stretch", 0},
                                              {"threshold", 50},
                                              {"threshold_at_256", 50}};
  EXPECT_EQ(formed.figures, want);
  EXPECT_EQ(formed.rule,
            "headscope: selectivity >= 50 at T = 256 (50 at T = 256) and mass, where "
            "measured, >= 0.1, 2 probes in a row");
}

TEST(HeadStates, TheFirstProbeHasNoProbeBeforeIt) {
  TrackedRun run(CircuitRules::reference());
  EXPECT_EQ(run.probe(60).front().previous_probe_step, -1);
}

}  // namespace
}  // namespace headscope
