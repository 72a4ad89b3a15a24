#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

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
};

AblationReport judge(Case c) {
  AblationLosses measured;
  measured.baseline = losses(5, 1);
  measured.ablated = losses(5 + c.effect, 2);
  for (size_t i = 0; i < c.control_effects.size(); ++i) {
    measured.controls.push_back(losses(5 + c.control_effects[i], 10 + static_cast<unsigned>(i)));
    c.controls.sets.push_back({{0, static_cast<int32_t>(i)}});
  }
  AblationReport report;
  judge_ablation(measured, c.controls, c.rule, report);
  return report;
}

TEST(JudgeAblation, VerifiesAnEffectFarBeyondItsControls) {
  const auto report = judge({});
  EXPECT_EQ(report.verdict, CircuitState::kVerified);
  EXPECT_GT(report.difference_low, 0);
  EXPECT_THAT(report.reason, HasSubstr("19 control sets"));
}

TEST(JudgeAblation, FillsTheFiguresFromTheLosses) {
  const auto baseline = losses(5, 1), ablated = losses(7, 2), control = losses(5.05, 10);
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  const auto report = judge({.control_effects = {.05}});
  EXPECT_DOUBLE_EQ(report.baseline_loss, mean(baseline));
  EXPECT_DOUBLE_EQ(report.effect, mean(ablated) - mean(baseline));
  EXPECT_DOUBLE_EQ(report.control_mean, mean(control) - mean(baseline));
  EXPECT_EQ(report.attainable_p, .5);
  EXPECT_EQ(report.examples, 64);
  EXPECT_EQ(report.control_sets.size(), 1u);
  EXPECT_TRUE(std::isnan(report.upper_bound_effect));
}

TEST(JudgeAblation, IntervalIsThatOfTheMeanDifference) {
  // Differences of known spread: the interval is mean -+ 1.96 sd / sqrt(n), within bootstrap noise.
  const auto report = judge({.control_effects = {0}});
  const auto ablated = losses(7, 2), control = losses(5, 10);
  double mean = 0, square = 0;
  for (size_t i = 0; i < kExamples; ++i) {
    mean += (ablated[i] - control[i]) / kExamples;
    square += (ablated[i] - control[i]) * (ablated[i] - control[i]) / kExamples;
  }
  const double half = 1.96 * std::sqrt((square - mean * mean) / kExamples);
  EXPECT_NEAR(report.difference_low, mean - half, .1 * half);
  EXPECT_NEAR(report.difference_high, mean + half, .1 * half);
}

TEST(JudgeAblation, IsInconclusiveWhenTheIntervalReachesZero) {
  const auto report = judge({.effect = .05, .control_effects = {.05, .02}});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("the interval reaches 0"));
}

TEST(JudgeAblation, IsInconclusiveBelowTheRatio) {
  const auto report = judge({.effect = 2, .control_effects = {1, 1, 1}});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("below 3 times the control mean"));
}

TEST(JudgeAblation, IsInconclusiveWhenOneControlReachesTheEffect) {
  auto controls = std::vector<double>(19, 0.0);
  controls[4] = 2.5;
  const auto report = judge({.effect = 2, .control_effects = controls});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("a control reaches"));
}

TEST(JudgeAblation, NeverVerifiesHeadsWhoseAbsenceHelps) {
  const auto report = judge({.effect = -.2, .control_effects = {-3, -3}});
  EXPECT_NE(report.verdict, CircuitState::kVerified);
  EXPECT_THAT(report.reason, HasSubstr("is not above 0"));
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

TEST(JudgeAblation, SaysWhatFewControlsItRestsOn) {
  Case few = {.control_effects = {0}};
  few.controls = {.sets = {}, .all_that_exist = true, .relaxed = true, .short_layers = true};
  EXPECT_THAT(judge(few).reason,
              testing::AllOf(HasSubstr("1 control set, all that exist (attainable p 0.5)"),
                             HasSubstr("recall threshold"), HasSubstr("smaller there")));
}

TEST(JudgeAblation, IsInconclusiveWithoutControls) {
  const auto report = judge({.control_effects = {}});
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_EQ(report.attainable_p, 1);
  EXPECT_THAT(report.reason, HasSubstr("no control set"));
}

TEST(JudgeAblation, IsInconclusiveOnALossThatIsNotFinite) {
  for (const double bad : {kNaN, std::numeric_limits<double>::infinity()}) {
    AblationLosses measured = {losses(5, 1), losses(7, 2), {losses(5, 3)}, {}};
    measured.controls[0][7] = bad;
    AblationReport report;
    judge_ablation(measured, {.sets = {{{0, 0}}}}, {}, report);
    EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
    EXPECT_THAT(report.reason, HasSubstr("not finite"));
    EXPECT_TRUE(std::isnan(report.difference_low));
  }
}

TEST(JudgeAblation, NeedsExamplesForABootstrap) {
  AblationReport report;
  judge_ablation({{5, 5}, {9, 9}, {{5, 5}}, {}}, {.sets = {{{0, 0}}}}, {}, report);
  EXPECT_EQ(report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(report.reason, HasSubstr("2 examples"));
}

TEST(JudgeAblation, ReportsTheUpperBoundWithoutGatingOnIt) {
  AblationLosses measured = {losses(5, 1), losses(7, 2), {losses(5, 3)}, losses(3, 4)};
  AblationReport report;
  judge_ablation(measured, {.sets = {{{0, 0}}}}, {}, report);
  EXPECT_LT(report.upper_bound_effect, -1);
  EXPECT_EQ(report.verdict, CircuitState::kVerified);
}

TEST(JudgeAblation, RefusesLossesThatDoNotPair) {
  AblationReport report;
  EXPECT_THROW(judge_ablation({{1, 2}, {1}, {}, {}}, {}, {}, report), std::invalid_argument);
  EXPECT_THROW(judge_ablation({{1}, {1}, {{1}}, {}}, {}, {}, report), std::invalid_argument);
}

TEST(JudgeAblation, IsDeterministic) {
  EXPECT_EQ(judge({}).difference_low, judge({}).difference_low);
}

}  // namespace
}  // namespace headscope
