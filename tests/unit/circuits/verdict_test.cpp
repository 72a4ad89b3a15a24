#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <stdexcept>
#include <utility>

#include "headscope/ablation.h"

namespace headscope {
namespace {

using testing::HasSubstr;

constexpr size_t kExamples = 64;

/// Losses of examples around `mean`, the same noise for the same seed.
std::vector<double> losses(double mean, unsigned seed, double spread = .5) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(mean, spread);
  std::vector<double> values(kExamples);
  for (double& value : values) value = normal(engine);
  return values;
}

struct Case {
  double effect = 2;
  std::vector<double> control_effects = std::vector<double>(19, .05);
  VerdictRule rule = {};
  ControlSets controls = {};
  std::vector<double> label_effects = std::vector<double>(39, .05);
  double exist = 560;
  double spread = .5;  ///< of the losses over examples
  double level_left = .05;
};

AblationReport judge(Case c) {
  AblationLosses measured;
  measured.baseline = losses(5, 1, c.spread);
  measured.ablated = losses(5 + c.effect, 2, c.spread);
  for (size_t i = 0; i < c.control_effects.size(); ++i) {
    measured.controls.push_back(
        losses(5 + c.control_effects[i], 10 + static_cast<unsigned>(i), c.spread));
    c.controls.sets.push_back({{0, static_cast<int32_t>(i)}});
  }
  LabelSets labels{.sets = {}, .exist = c.exist};
  for (size_t i = 0; i < c.label_effects.size(); ++i) {
    auto on_some = losses(5 + c.label_effects[i], 100 + static_cast<unsigned>(i), c.spread);
    on_some.resize(32);
    measured.labelled.push_back(std::move(on_some));
    labels.sets.push_back({{0, static_cast<int32_t>(i)}});
  }
  AblationReport report;
  judge_ablation(measured, c.controls, labels, LabelTest::plan(c.level_left, c.exist, c.rule),
                 c.rule, report);
  return report;
}

TEST(JudgeAblation, VerifiesAnEffectFarBeyondItsControlsAndLabelSets) {
  const auto report = judge({});
  EXPECT_EQ(report.verdict, CircuitState::kVerified);
  EXPECT_GT(report.effect_low, .1);
  EXPECT_GT(report.difference_low, 0);
  EXPECT_EQ(report.p_value, 1 / 40.);
  EXPECT_NEAR(report.level, .03, 1e-12);
  EXPECT_EQ(report.label_effects.size(), 39u);
  EXPECT_THAT(report.reason, testing::AllOf(HasSubstr("19 disjoint control sets"),
                                            HasSubstr("p 0.025 of 39 sets")));
}

TEST(JudgeAblation, FillsTheFiguresFromTheLosses) {
  const auto baseline = losses(5, 1), ablated = losses(7, 2), control = losses(5.05, 10);
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  const auto first = [](std::vector<double> v) {
    v.resize(32);
    return v;
  };
  const auto report = judge({.control_effects = {.05}});
  EXPECT_DOUBLE_EQ(report.baseline_loss, mean(baseline));
  EXPECT_DOUBLE_EQ(report.effect, mean(ablated) - mean(baseline));
  EXPECT_DOUBLE_EQ(report.control_mean, mean(control) - mean(baseline));
  EXPECT_DOUBLE_EQ(report.labelled_effect, mean(first(ablated)) - mean(first(baseline)));
  EXPECT_DOUBLE_EQ(report.label_effects[0], mean(first(losses(5.05, 100))) - mean(first(baseline)));
  EXPECT_EQ(report.attainable_p, 1 / 560.);
  EXPECT_EQ(report.examples, 64);
  EXPECT_EQ(report.control_sets.size(), 1u);
  EXPECT_TRUE(std::isnan(report.upper_bound_effect));
}

/// mean -+ t(.975, 63) sd / sqrt(64) of the differences.
std::pair<double, double> student_interval(const std::vector<double>& a,
                                           const std::vector<double>& b) {
  double mean = 0, square = 0;
  for (size_t i = 0; i < kExamples; ++i) {
    mean += (a[i] - b[i]) / kExamples;
    square += (a[i] - b[i]) * (a[i] - b[i]) / kExamples;
  }
  const double half = 1.998 * std::sqrt((square - mean * mean) / (kExamples - 1));
  return {mean - half, mean + half};
}

TEST(JudgeAblation, IntervalsAreThoseOfTheMeanEffectAndDifference) {
  const auto report = judge({.control_effects = {0}});
  const auto effect = student_interval(losses(7, 2), losses(5, 1));
  const auto difference = student_interval(losses(7, 2), losses(5, 10));
  EXPECT_NEAR(report.effect_low, effect.first, .02);
  EXPECT_NEAR(report.effect_high, effect.second, .02);
  EXPECT_NEAR(report.difference_low, difference.first, .02);
  EXPECT_NEAR(report.difference_high, difference.second, .02);
}

// Two control sets far apart say little about a third.
TEST(JudgeAblation, TheDifferencesIntervalKnowsThatControlsAreASample) {
  const auto alike = judge({.control_effects = {.2, .2}});
  const auto apart = judge({.control_effects = {-.6, 1}});
  EXPECT_NEAR(apart.effect_high - apart.effect_low, alike.effect_high - alike.effect_low, 1e-12);
  EXPECT_GT(apart.difference_high - apart.difference_low,
            2 * (alike.difference_high - alike.difference_low));
}

// Controls that help make any effect look large beside them.
TEST(JudgeAblation, AnEffectOfAHundredthIsNotVerifiedByControlsThatHelp) {
  const auto report =
      judge({.effect = .01, .control_effects = std::vector<double>(19, -.4), .spread = .02});
  EXPECT_EQ(report.verdict, CircuitState::kNotCausal);
  EXPECT_GT(report.difference_low, 0);
  EXPECT_LT(report.effect_high, .1);
}

TEST(JudgeAblation, ALargeEffectWithOneLargerControlIsUnspecific) {
  const auto report = judge({.effect = 3, .control_effects = {.1, .1, 9.2}});
  EXPECT_EQ(report.verdict, CircuitState::kUnspecific);
  EXPECT_THAT(report.reason, HasSubstr("others of their layers"));
}

TEST(JudgeAblation, AnEffectThatItsOnlyRelaxedControlMatchesIsUnspecific) {
  const auto report = judge({.effect = .43,
                             .control_effects = {.417},
                             .controls = {.sets = {}, .all_that_exist = true, .relaxed = true},
                             .spread = .05});
  EXPECT_EQ(report.verdict, CircuitState::kUnspecific);
  EXPECT_THAT(report.reason, testing::AllOf(HasSubstr("1 disjoint control set, all that exist"),
                                            HasSubstr("at or above the recall threshold")));
}

TEST(JudgeAblation, IsUnspecificWhenALargePartOfTheLabelSetsIsAsStrong) {
  auto labels = std::vector<double>(39, .05);
  for (size_t i = 0; i < 12; ++i) labels[i] = 2.5;
  const auto report = judge({.label_effects = labels});
  EXPECT_EQ(report.verdict, CircuitState::kUnspecific);
  EXPECT_EQ(report.p_value, 13 / 40.);
}

TEST(JudgeAblation, IsInconclusiveWhenAFewLabelSetsAreAsStrong) {
  auto labels = std::vector<double>(39, .05);
  labels[3] = labels[7] = 2.5;
  const auto report = judge({.label_effects = labels});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("p is above the level"));
}

TEST(JudgeAblation, IsInconclusiveAroundTheSmallestEffect) {
  const auto report = judge({.effect = .1, .control_effects = {0}});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("more distinct examples"));
}

TEST(JudgeAblation, IsInconclusiveWhenTheDifferenceReachesZero) {
  const auto report = judge({.effect = 2, .control_effects = {-6, 7}});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("reaches 0"));
}

TEST(JudgeAblation, NeverVerifiesHeadsWhoseAbsenceHelps) {
  EXPECT_EQ(judge({.effect = -.5, .control_effects = {-3, -3}}).verdict, CircuitState::kNotCausal);
}

TEST(JudgeAblation, PassesTheRatioWhenControlsHelp) {
  EXPECT_EQ(judge({.effect = 1, .control_effects = {-.2, -.4}}).verdict, CircuitState::kVerified);
}

TEST(JudgeAblation, CallsNotCausalOnlyBelowTheSmallestEffect) {
  const Case none = {.effect = -.5, .control_effects = {0, 0, 0}};
  EXPECT_EQ(judge(none).verdict, CircuitState::kNotCausal);
  auto stricter = none;
  stricter.rule.smallest_effect = -.5;
  EXPECT_EQ(judge(stricter).verdict, CircuitState::kInconclusive);
}

// One head of 8: the smallest p is .125, whatever the effect.
TEST(JudgeAblation, SaysThatTooFewHeadsGiveNoVerdict) {
  const auto report = judge({.label_effects = {}, .exist = 8});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_EQ(report.attainable_p, .125);
  EXPECT_THAT(report.reason, testing::AllOf(HasSubstr("too few heads"), HasSubstr("0.125")));
}

TEST(JudgeAblation, SaysThatTheLevelIsUsedUp) {
  const auto report = judge({.label_effects = {}, .level_left = .001});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("too few heads"));
  EXPECT_THAT(judge({.label_effects = {}, .exist = 1e6, .level_left = .001}).reason,
              HasSubstr("after earlier attempts"));
}

TEST(JudgeAblation, NeedsNoDisjointControlsWhereNoneExist) {
  EXPECT_EQ(judge({.control_effects = {}}).verdict, CircuitState::kVerified);
}

TEST(JudgeAblation, IsInconclusiveOnALossThatIsNotFinite) {
  for (const double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    AblationLosses measured{.baseline = losses(5, 1), .ablated = losses(7, 2)};
    measured.ablated[7] = bad;
    AblationReport report;
    judge_ablation(measured, {}, {}, {}, {}, report);
    EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
    EXPECT_THAT(report.reason, HasSubstr("not finite"));
    EXPECT_TRUE(std::isnan(report.effect_low));
    measured.ablated[7] = 7;
    measured.controls = {losses(5, 3)};
    measured.controls[0][7] = bad;
    judge_ablation(measured, {.sets = {{{0, 0}}}}, {}, {}, {}, report);
    EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
    EXPECT_THAT(report.reason, HasSubstr("not finite"));
    EXPECT_TRUE(std::isnan(report.difference_low));
  }
}

TEST(JudgeAblation, ALabelSetWithoutAFiniteLossCountsAgainstTheCircuit) {
  auto labels = std::vector<double>(39, .05);
  labels[0] = labels[1] = kNaN;
  EXPECT_EQ(judge({.label_effects = labels}).p_value, 3 / 40.);
}

TEST(JudgeAblation, NeedsExamplesForABootstrap) {
  AblationReport report;
  const std::vector<double> seven(7, 5.), more(7, 9.);
  judge_ablation({.baseline = seven, .ablated = more}, {}, {}, {}, {}, report);
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("7 distinct examples"));
}

TEST(JudgeAblation, ReportsTheUpperBoundWithoutGatingOnIt) {
  AblationLosses measured{.baseline = losses(5, 1), .ablated = losses(7, 2)};
  AblationReport without, with;
  judge_ablation(measured, {}, {}, {}, {}, without);
  measured.upper_bound = losses(3, 4);
  judge_ablation(measured, {}, {}, {}, {}, with);
  EXPECT_LT(with.upper_bound_effect, -1);
  EXPECT_EQ(with.verdict, without.verdict);
}

TEST(JudgeAblation, RefusesLossesThatDoNotPair) {
  AblationReport report;
  EXPECT_THROW(judge_ablation({.baseline = {1, 2}, .ablated = {1}}, {}, {}, {}, {}, report),
               std::invalid_argument);
  EXPECT_THROW(
      judge_ablation({.baseline = {1}, .ablated = {1}, .controls = {{1}}}, {}, {}, {}, {}, report),
      std::invalid_argument);
  EXPECT_THROW(
      judge_ablation({.baseline = {1}, .ablated = {1}, .labelled = {{1}}}, {}, {}, {}, {}, report),
      std::invalid_argument);
}

TEST(JudgeAblation, IsDeterministic) {
  EXPECT_EQ(judge({}).difference_low, judge({}).difference_low);
}

}  // namespace
}  // namespace headscope
