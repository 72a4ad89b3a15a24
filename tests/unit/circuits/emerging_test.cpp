// `emerging` where null tests exist, and the two precursors told apart.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/circuits/tracked_run.h"

namespace headscope {
namespace {

using test::told;
using test::TrackedRun;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using enum CircuitState;

/// A test of two heads whose critical value is 4.
NullTestResult tested(double z, double second = 0) {
  NullTestResult result;
  result.z = {z, second};
  result.excess = {1, 1};
  result.max_z = std::fmax(z, second);
  result.critical_z = 4;
  result.significant = result.max_z >= 4;
  result.p_value = result.significant ? 1e-5 : .5;
  result.alpha = 4e-5;
  result.rows = 120;
  result.beats = {z >= 4, second >= 4};
  return result;
}

void set(TrackedRun& run, std::optional<NullTestResult> margin, std::optional<NullTestResult> mass,
         double margin_nats = 1) {
  for (auto& head : run.heads) head.patterns[0].margin = margin_nats;
  run.nulls.assign(2, {});
  run.nulls[0] = {std::move(margin), std::move(mass)};
}

TEST(Emerging, FollowsTheMarginsTestNotTheSelectivity) {
  TrackedRun run;
  set(run, tested(3.9), tested(9));
  EXPECT_THAT(run.probes({9, 9, 9}), IsEmpty());
  set(run, tested(4.1), tested(0));
  EXPECT_THAT(told(run.probes({1.5, 1.5}), true), ElementsAre("emerging@50"));
}

TEST(Emerging, NeedsTheEffectFloorBesideTheTest) {
  TrackedRun run;
  set(run, tested(9), {}, std::log(2) - .01);
  EXPECT_THAT(run.probes({1.5, 1.5}), IsEmpty());
  set(run, tested(9), {}, std::log(2));
  EXPECT_THAT(told(run.probes({1.5, 1.5}), true), ElementsAre("emerging@40"));
}

// A head that spends its attention elsewhere may still prefer the targets to other keys.
TEST(Emerging, NeedsHalfOfTheFloorInSelectivityWhateverTheMargin) {
  TrackedRun run;
  set(run, tested(9), {}, 5);
  EXPECT_THAT(run.probes({.09, 1.4, 1.4}), IsEmpty());
  EXPECT_EQ(run.circuit().margin_step, -1);
  EXPECT_THAT(told(run.probes({1.42, 1.42}), true), ElementsAre("emerging@50"));
}

// One large score among the targets lifts the excess over the mean score, not the attention.
TEST(Emerging, NeverTakesAnExcessOverTheMeanScoreForAnEffect) {
  TrackedRun run;
  auto far_above_its_mean = tested(9);
  far_above_its_mean.excess = {5, 5};
  set(run, far_above_its_mean, {}, -.3);
  EXPECT_THAT(run.probes({.115, .115, 1.9}), IsEmpty());
  EXPECT_THAT(told(run.probes({2, 2}), true), ElementsAre("emerging@50"));
}

TEST(Emerging, OfTheMassNeedsItsTestAndTwofoldSelectivity) {
  CircuitRules rules;
  rules.precursor = Precursor::kMass;
  TrackedRun run(rules);
  set(run, tested(9), tested(9));
  EXPECT_THAT(run.probes({1.9, 1.9}), IsEmpty());
  EXPECT_THAT(told(run.probes({2, 2}), true), ElementsAre("emerging@40"));
}

TEST(Emerging, OfEitherTakesWhicheverComesFirst) {
  CircuitRules rules;
  rules.precursor = Precursor::kEither;
  for (const bool margin : {true, false}) {
    TrackedRun run(rules);
    set(run, tested(margin ? 9 : 0), tested(margin ? 0 : 9));
    EXPECT_THAT(told(run.probes({3, 3}), true), ElementsAre("emerging@20")) << margin;
  }
  TrackedRun run(rules);
  set(run, tested(kNaN), tested(0));
  run.probes({3});
  set(run, tested(9), tested(0));
  EXPECT_THAT(told(run.probes({3, 3}), true),
              ElementsAre("emerging@30"));  // NaN counted for nothing
}

TEST(Emerging, FallsBackOnTheOtherTest) {
  TrackedRun run;
  set(run, {}, tested(9));
  EXPECT_THAT(told(run.probes({3, 3}), true), ElementsAre("emerging@20"));
}

TEST(Emerging, HoldsWhereAProbeLacksBothTests) {
  TrackedRun run;
  set(run, {}, {});
  EXPECT_THAT(run.probes({9, 9, 9}), IsEmpty());
}

TEST(Emerging, HoldsOnAHeadThatTheTestCouldNotRead) {
  TrackedRun run;
  set(run, tested(9), {});
  run.probe(1.5);
  set(run, tested(kNaN), {});
  run.probe(1.5);
  set(run, tested(9), {}, kNaN);
  EXPECT_THAT(run.probes({1.5}), IsEmpty());
  set(run, tested(9), {});
  EXPECT_THAT(told(run.probes({1.5}), true), ElementsAre("emerging@40"));
}

TEST(Emerging, EventCarriesTheTest) {
  TrackedRun run;
  set(run, tested(5), tested(2));
  const auto event = run.probes({1.5, 1.5}).front();
  EXPECT_EQ(event.figures.at("margin_z"), 5);
  EXPECT_EQ(event.figures.at("critical_z"), 4);
  EXPECT_EQ(event.figures.at("p_value"), 1e-5);
  EXPECT_EQ(event.figures.at("alpha"), 4e-5);
  EXPECT_EQ(event.figures.at("null_rows"), 120);
  EXPECT_EQ(event.figures.at("mass_z"), 2);
  EXPECT_THAT(event.rule, AllOf(HasSubstr("margin z >= critical z 4"), HasSubstr("level 4e-05"),
                                HasSubstr("margin >= 0.693147 nats or selectivity >= 2, and "
                                          "selectivity >= 1.41421")));
}

TEST(Emerging, SaysWhenNoNullWasDrawn) {
  TrackedRun run;
  EXPECT_THAT(run.probes({3, 3}).front().rule, HasSubstr("no null was drawn"));
}

TEST(Precursors, AreDatedApartByTheirUnbrokenRun) {
  TrackedRun run;
  set(run, tested(5), tested(0));
  run.probe(3);
  set(run, tested(0), tested(0));
  run.probe(3);  // the margin's run breaks
  set(run, tested(5), tested(0));
  run.probe(3);  // step 30
  EXPECT_EQ(run.circuit().margin_step, 30);
  EXPECT_EQ(run.circuit().mass_step, -1);
  set(run, tested(5), tested(5));
  run.probe(3);  // step 40
  EXPECT_EQ(run.circuit().margin_step, 30);
  EXPECT_EQ(run.circuit().mass_step, 40);
  EXPECT_EQ(run.circuit().critical_margin_z, 4);
}

TEST(Precursors, RunOnWhicheverHeadBeatsTheNull) {
  TrackedRun run;
  set(run, tested(5, 0), {});
  run.probe(1.5, 1.5);
  set(run, tested(0, 5), {});
  run.probe(1.5, 1.5);
  EXPECT_EQ(run.circuit().margin_step, 10);
  set(run, tested(0, kNaN), {});
  run.probe(1.5, 1.5);  // not known: holds
  EXPECT_EQ(run.circuit().margin_step, 10);
  set(run, tested(0, 0), {});
  run.probe(1.5, 1.5);
  EXPECT_EQ(run.circuit().margin_step, -1);
}

TEST(Precursors, AreFrozenOnceFormedAndFreeAgainWhenLost) {
  TrackedRun run;
  set(run, tested(5), tested(5));
  run.probes({60, 60});
  set(run, tested(0), tested(0));
  run.probes({60, 60});
  EXPECT_EQ(run.circuit().margin_step, 10);
  EXPECT_EQ(run.circuit().mass_step, 10);
  run.probes({1.5, 1.5});
  EXPECT_EQ(run.circuit().state, kLost);
  EXPECT_EQ(run.circuit().margin_step, -1);
}

TEST(Precursors, BreakAtANewStretch) {
  TrackedRun run;
  set(run, tested(5), {});
  run.heads[0].patterns[0].selectivity = 3;
  run.at(100);
  run.at(50);
  EXPECT_EQ(run.circuit().margin_step, 50);
}

}  // namespace
}  // namespace headscope
