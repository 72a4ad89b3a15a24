// The pattern level of docs/math.md section 6, verdicts and when they are due.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "tests/unit/circuits/tracked_run.h"

namespace headscope {
namespace {

using test::told;
using test::TrackedRun;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using enum CircuitState;

const HeadId kFirst = {0, 0}, kSecond = {0, 1};

TEST(CircuitStates, EmergesFormsAndIsLostWithItsHeads) {
  TrackedRun run;
  EXPECT_THAT(told(run.probes({1, 3, 3, 60, 60, 1, 1}), false),
              ElementsAre("emerging@30", "formed@50", "lost@70"));
}

TEST(CircuitStates, DatesChangesByTheFirstProbeOfTheirRun) {
  TrackedRun run;
  run.probes({1, 3, 3, 60, 60});
  const auto circuit = run.circuit();
  EXPECT_EQ(circuit.emerging_step, 20);
  EXPECT_EQ(circuit.emerging_tokens, 2000);
  EXPECT_EQ(circuit.formed_step, 40);
  EXPECT_EQ(circuit.formed_tokens, 4000);
  EXPECT_EQ(circuit.best_selectivity, 60);
  EXPECT_EQ(circuit.formed_threshold, 50);
}

TEST(CircuitStates, ReturnsToDormantWithItsLastEmergingHead) {
  TrackedRun run;
  run.probe(3, 3);
  run.probe(3, 3);
  EXPECT_THAT(run.circuit().heads, ElementsAre(kFirst, kSecond));
  run.probe(3, 1);
  EXPECT_THAT(told(run.probe(3, 1), false), IsEmpty());
  run.probe(1, 1);
  EXPECT_THAT(told(run.probe(1, 1), false), ElementsAre("dormant@60"));
  EXPECT_EQ(run.circuit().emerging_step, -1);
  EXPECT_THAT(run.circuit().heads, IsEmpty());
}

TEST(CircuitStates, FormedNamesFormedHeadsOnlyAndOutlivesOneOfTwo) {
  TrackedRun run;
  run.probe(60, 3);
  run.probe(60, 3);
  EXPECT_THAT(run.circuit().heads, ElementsAre(kFirst));
  run.probe(60, 60);
  EXPECT_THAT(told(run.probe(60, 60), false), IsEmpty());
  EXPECT_THAT(run.circuit().heads, ElementsAre(kFirst, kSecond));
  run.probe(1, 60);
  EXPECT_THAT(told(run.probe(1, 60), false), IsEmpty());
  EXPECT_THAT(run.circuit().heads, ElementsAre(kSecond));
  EXPECT_EQ(run.circuit().state, kFormed);
}

TEST(CircuitStates, LostWithAnEmergingHeadIsEmergingAtOnce) {
  TrackedRun run;
  run.probe(60, 3);
  run.probe(60, 3);
  run.probe(1, 3);
  EXPECT_THAT(told(run.probe(1, 3), false), ElementsAre("lost@40", "emerging@40"));
  EXPECT_EQ(run.circuit().state, kEmerging);
  EXPECT_EQ(run.circuit().formed_step, -1);
}

TEST(CircuitStates, ReFormsWithoutAnEmergingDateWhenOnlySelectivitySaysSo) {
  TrackedRun run;
  run.nulls.assign(2, {});  // tests that say nothing: `emerging` holds
  EXPECT_THAT(told(run.probes({60, 60}), false), ElementsAre("formed@20"));
  EXPECT_EQ(run.circuit().emerging_step, -1);
  EXPECT_EQ(run.circuit().formed_step, 10);
}

TEST(CircuitStates, ConvertsWhenEveryHeadThatLeftDid) {
  TrackedRun run;
  run.probes({60, 60});
  run.heads[0].patterns[1].selectivity = 40;
  run.probe(1);
  const auto events = run.probe(1);
  EXPECT_THAT(told(events, false), ElementsAre("converted@40", "emerging@40", "formed@40"));
  EXPECT_EQ(run.circuit(0).state, kLost);
  EXPECT_EQ(run.circuit(1).state, kFormed);
}

// Formed in both all along: leaving one is a loss there, not a conversion.
TEST(CircuitStates, LosesAHeadThatWasFormedInTheOtherPatternBefore) {
  TrackedRun run;
  run.heads[0].patterns[1].selectivity = 40;
  run.probes({1, 1});
  EXPECT_EQ(run.circuit(1).state, kFormed);
  run.probes({60, 60});
  run.probe(1);
  EXPECT_THAT(told(run.probe(1), false), ElementsAre("lost@60"));
}

TEST(CircuitStates, KeepTheCriticalValueThatWasLastResolved) {
  TrackedRun run;
  NullTestResult test{.z = {1, 1}, .excess = {0, 0}, .critical_z = 4.5, .beats = {false, false}};
  run.nulls.assign(2, {});
  run.nulls[0].margin = test;
  run.probe(1);
  run.nulls[0].margin->critical_z = kNaN;  // clear before enough draws were made
  run.probe(1);
  EXPECT_EQ(run.circuit().critical_margin_z, 4.5);
  run.nulls[0].margin->critical_z = 4.75;
  run.probe(1);
  EXPECT_EQ(run.circuit().critical_margin_z, 4.75);
}

TEST(CircuitStates, HeadEventsComeBeforePatternEvents) {
  TrackedRun run;
  bool pattern_level = false;
  for (const auto& event : run.probes({1, 60, 60})) {
    EXPECT_FALSE(pattern_level && event.head_level);
    pattern_level = !event.head_level;
  }
  EXPECT_TRUE(pattern_level);
}

class Verdicts : public testing::TestWithParam<CircuitState> {};

TEST_P(Verdicts, AreEnteredAndHoldUntilLost) {
  TrackedRun run;
  run.probes({60, 60});
  const auto events = run.judge(GetParam());
  EXPECT_THAT(told(events, false), ElementsAre(std::string(to_string(GetParam())) + "@20"));
  EXPECT_EQ(events[0].figures.at("effect"), 2);
  EXPECT_THAT(events[0].rule, HasSubstr("because"));
  EXPECT_EQ(run.circuit().state, GetParam());
  run.probes({60, 10, 60});
  EXPECT_EQ(run.circuit().state, GetParam());
  EXPECT_THAT(told(run.probes({1, 1}), false), ElementsAre("lost@70"));
}

// The heads did not matter when they were tried first; an effect above all that this allowed for is
// not nothing, even when a later attempt cannot say what it is.
TEST(Verdicts, AnEffectBeyondNotCausalsIntervalTakesItBack) {
  for (const auto& [low, after] : {std::pair{.05, kNotCausal}, std::pair{2.8, kInconclusive}}) {
    TrackedRun run;
    run.probes({60, 60});
    AblationReport none = run.report(kNotCausal);
    none.effect_low = -.02;
    none.effect_high = .06;
    run.tracker.apply_verdict(none, 1, 2);
    ASSERT_EQ(run.circuit().state, kNotCausal);
    TrackedRun restored;
    restored.tracker.load(run.tracker.save());
    AblationReport later = run.report(kInconclusive);
    later.effect_low = low;
    later.effect_high = 3.2;
    for (auto* tracker : {&run.tracker, &restored.tracker}) {
      tracker->apply_verdict(later, 1, 2);
      EXPECT_EQ(tracker->readings()[0].state, after) << low;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Verdicts,
                         testing::Values(kVerified, kNotCausal, kUnspecific, kInconclusive));

TEST(Verdicts, AnInconclusiveAttemptNeverTakesOneAway) {
  for (const auto verdict : {kVerified, kNotCausal, kUnspecific}) {
    TrackedRun run;
    run.probes({60, 60});
    run.judge(verdict);
    const auto before = run.circuit();
    EXPECT_THAT(run.judge(kInconclusive), IsEmpty());
    EXPECT_EQ(run.circuit().state, verdict);
    EXPECT_EQ(run.circuit().judged_heads, before.judged_heads);
    EXPECT_EQ(run.circuit().verified_step, before.verified_step);
  }
}

TEST(Verdicts, ATrueOneReplacesAnyOther) {
  TrackedRun run;
  run.probes({60, 60});
  run.judge(kNotCausal);
  EXPECT_THAT(told(run.judge(kVerified), false), ElementsAre("verified@20"));
  EXPECT_THAT(told(run.judge(kUnspecific), false), ElementsAre("unspecific@20"));
  EXPECT_EQ(run.circuit().verified_step, -1);
}

TEST(Verdicts, SayNothingAgainWhenNothingChanged) {
  TrackedRun run;
  run.probes({60, 60});
  run.judge(kVerified);
  EXPECT_THAT(run.judge(kVerified), IsEmpty());
}

// A circuit of other heads than those that were ablated was never verified.
TEST(Verdicts, AreAboutTheirHeadsAndEndWhenMostAreNew) {
  TrackedRun run;
  run.probes({60, 60});
  run.judge(kVerified);
  EXPECT_THAT(run.circuit().judged_heads, ElementsAre(kFirst));
  run.probe(60, 60);
  EXPECT_THAT(told(run.probe(60, 60), false), IsEmpty());
  EXPECT_EQ(run.circuit().state, kVerified);  // half of its heads were judged
  run.probe(1, 60);
  const auto events = run.probe(1, 60);  // the other half is left alone
  EXPECT_THAT(told(events, false), ElementsAre("formed@60"));
  EXPECT_THAT(events.back().rule, HasSubstr("not in the last verdict"));
  EXPECT_EQ(run.circuit().state, kFormed);
  EXPECT_EQ(run.circuit().verified_step, -1);
  EXPECT_THAT(run.circuit().judged_heads, IsEmpty());
}

TEST(Verdicts, DateTheFirstVerificationAndForgetItWhenNotCausal) {
  TrackedRun run;
  run.probes({60, 60});
  run.judge(kVerified);
  EXPECT_EQ(run.circuit().verified_step, 20);
  EXPECT_EQ(run.circuit().verified_tokens, 1);
  run.probe(60);
  run.judge(kVerified);
  EXPECT_EQ(run.circuit().verified_step, 20);
  run.judge(kNotCausal);
  EXPECT_EQ(run.circuit().verified_step, -1);
}

TEST(Verdicts, ChangeNothingAfterALossOrAboutOtherHeads) {
  TrackedRun run;
  run.probes({60, 60});
  EXPECT_THAT(run.judge(kVerified, {kSecond}), IsEmpty());
  auto beside = run.report(kVerified);
  beside.gate = false;
  EXPECT_THAT(run.tracker.apply_verdict(beside, 1, 2), IsEmpty());
  EXPECT_EQ(run.circuit().state, kFormed);
  run.probes({1, 1});
  EXPECT_THAT(run.judge(kVerified), IsEmpty());
  EXPECT_EQ(run.circuit().state, kLost);
}

TEST(Verdicts, RefuseAStateThatIsNoneAndAnUnknownPattern) {
  TrackedRun run;
  run.probes({60, 60});
  EXPECT_THROW(run.judge(kFormed), std::invalid_argument);
  auto report = run.report(kVerified);
  report.pattern = "other";
  EXPECT_THROW(run.tracker.apply_verdict(report, 1, 2), std::invalid_argument);
}

/// Probes at 60 until a verification is due, at most 100.
int probes_until_due(TrackedRun& run, double second = 1) {
  for (int count = 0; count <= 100; ++count) {
    if (run.tracker.verification_due()) return count;
    run.probe(60, second);
  }
  return -1;
}

// Behaviour follows formation, and an attempt costs part of the level.
TEST(VerificationDue, OnceTheHeadsHaveStayedTheSameForFourProbes) {
  TrackedRun run;
  run.probes({60, 60});
  EXPECT_EQ(probes_until_due(run), 4);
  run.judge(kInconclusive);
  EXPECT_EQ(probes_until_due(run), 8);
}

TEST(VerificationDue, ANewHeadDelaysTheFirstAttempt) {
  TrackedRun run;
  run.probes({60, 60});
  run.probe(60);
  for (int i = 0; i < 2; ++i) run.probe(60, 60);  // formed at the second: the fifth probe
  EXPECT_EQ(run.head(1), kFormed);
  EXPECT_EQ(probes_until_due(run, 60), 4);
  EXPECT_THAT(run.tracker.verification_due()->heads, ElementsAre(kFirst, kSecond));
}

TEST(VerificationDue, HeadsThatNeverSettleAreTriedAfterFourTimesAsMany) {
  TrackedRun run;
  run.probes({60, 60});
  int probes = 0;
  while (!run.tracker.verification_due() && probes < 100) run.probe(60, probes++ % 4 < 2 ? 60 : 1);
  EXPECT_EQ(probes, 16);
}

TEST(VerificationDue, ACircuitThatFormsAgainSettlesAgain) {
  TrackedRun run({.retry_probes = 1});
  run.probes({60, 60});
  EXPECT_EQ(probes_until_due(run), 4);
  run.judge(kNotCausal);
  run.probes({1, 1, 60, 60});
  EXPECT_EQ(probes_until_due(run), 4);
}

TEST(VerificationDue, AsSoonAsFormedWithTheFormedHeads) {
  TrackedRun run({.settle_probes = 0});
  run.probes({60});
  EXPECT_FALSE(run.tracker.verification_due());
  run.probes({60});
  const auto due = run.tracker.verification_due();
  ASSERT_TRUE(due);
  EXPECT_EQ(due->pattern, 0u);
  EXPECT_THAT(due->heads, ElementsAre(kFirst));
}

TEST(VerificationDue, NeverForAPatternWithoutAMetric) {
  TrackedRun run({.settle_probes = 0});
  for (int i = 0; i < 20; ++i) run.probe(60, 1, 1);
  EXPECT_EQ(run.circuit(1).state, kFormed);
  EXPECT_FALSE(run.tracker.verification_due());
}

TEST(VerificationDue, NotAgainOnceVerified) {
  TrackedRun run({.settle_probes = 0});
  run.probes({60, 60});
  run.judge(kVerified);
  EXPECT_EQ(probes_until_due(run), -1);
}

// Right after formation the behaviour may not follow yet.
TEST(VerificationDue, AgainAfterEveryOtherVerdictTwiceAsLongEachTime) {
  for (const auto verdict : {kNotCausal, kUnspecific, kInconclusive}) {
    TrackedRun run({.settle_probes = 0});
    run.probes({60, 60});
    for (const int wait : {8, 16, 32}) {
      run.judge(verdict);
      EXPECT_EQ(probes_until_due(run), wait) << to_string(verdict);
    }
  }
}

TEST(VerificationDue, CountsTheAttemptsAndTheLevelTheySpent) {
  TrackedRun run({.settle_probes = 0});
  run.probes({60, 60});
  EXPECT_EQ(run.tracker.verification_due()->attempt, 0);
  EXPECT_EQ(run.tracker.verification_due()->level_spent, 0);
  auto report = run.report(kInconclusive);
  report.level = .03;
  run.tracker.apply_verdict(report, 1, 2);
  run.judge(kInconclusive);  // without random labelling: it spent nothing
  ASSERT_EQ(probes_until_due(run), 16);
  EXPECT_EQ(run.tracker.verification_due()->attempt, 2);
  EXPECT_EQ(run.tracker.verification_due()->level_spent, .03);
  run.probes({1, 1, 60, 60});
  // Another circuit has its own level; held-out rows are not used twice.
  EXPECT_EQ(run.tracker.formed_circuits()[0].attempt, 2);
  EXPECT_EQ(run.tracker.formed_circuits()[0].level_spent, 0);
}

TEST(VerificationDue, AgainWhenTheHeadsChangedButNoSoonerThanTheWait) {
  TrackedRun run({.settle_probes = 0});
  run.probes({60, 60});
  run.judge(kVerified);
  EXPECT_EQ(probes_until_due(run, 60), 8);
  EXPECT_THAT(run.tracker.verification_due()->heads, ElementsAre(kFirst, kSecond));
  EXPECT_EQ(run.circuit().state, kVerified);
}

TEST(VerificationDue, AnewAfterALossNoSoonerThanTheWait) {
  TrackedRun run({.settle_probes = 0});
  run.probes({60, 60});
  run.judge(kNotCausal);
  run.probes({1, 1});
  EXPECT_EQ(probes_until_due(run), 6);  // two of the eight passed before the loss
}

TEST(VerificationDue, TheOneWaitingLongestComesFirst) {
  auto patterns = test::two_patterns();
  patterns[1].metric = BehaviourMetric::kRepeatedLoss;
  TrackedRun run({.settle_probes = 0}, patterns);
  run.heads[0].patterns[1].selectivity = 60;
  run.probes({60, 60});
  run.judge(kInconclusive);
  EXPECT_EQ(run.tracker.verification_due()->pattern, 1u);
}

TEST(CircuitTracker, ScalesEachPatternsThresholdWithItsOwnContext) {
  const CircuitTracker tracker(test::two_patterns(), {256, 128});
  EXPECT_DOUBLE_EQ(tracker.formed_threshold(0), 50);
  EXPECT_DOUBLE_EQ(tracker.formed_threshold(1), 30. * 127 / 255);
}

TEST(CircuitTracker, RefusesWhatDoesNotFit) {
  EXPECT_THROW(CircuitTracker({}, 256), std::invalid_argument);
  EXPECT_THROW(CircuitTracker(test::two_patterns(), 1), std::invalid_argument);
  EXPECT_THROW(CircuitTracker(test::two_patterns(), std::vector<int64_t>{256}),
               std::invalid_argument);
  EXPECT_THROW(CircuitTracker(test::two_patterns(), {256, 1}), std::invalid_argument);
  CircuitRules rules;
  rules.leave_fraction = 1.5;
  EXPECT_THROW(CircuitTracker(test::two_patterns(), 256, rules), std::invalid_argument);
  TrackedRun run;
  run.probe(1);
  auto heads = run.heads;
  heads[1].id = {3, 3};
  EXPECT_THROW(run.tracker.update({.step = 20, .heads = heads, .nulls = {}}),
               std::invalid_argument);
  heads = run.heads;
  heads[1].patterns.pop_back();
  EXPECT_THROW(run.tracker.update({.step = 20, .heads = heads, .nulls = {}}),
               std::invalid_argument);
  EXPECT_THROW(run.tracker.update({.step = 20, .heads = run.heads, .nulls = {{}}}),
               std::invalid_argument);
  PatternNulls of_one_head;
  of_one_head.margin = {.z = {1}, .excess = {1}, .beats = {false}};
  EXPECT_THROW(
      run.tracker.update({.step = 20, .heads = run.heads, .nulls = {of_one_head, PatternNulls{}}}),
      std::invalid_argument);
  EXPECT_EQ(run.tracker.probes(), 1);
}

}  // namespace
}  // namespace headscope
