// Sittings of one verification between which training goes on (docs/math.md section 7).

#include "csrc/monitor/analysis/verification.h"

#include <gtest/gtest.h>

#include <vector>

namespace headscope {
namespace {

constexpr size_t kExamples = 40, kLabelled = 32;

/// A circuit of two of eight heads of one layer, without disjoint controls.
Verification two_of_eight() {
  AblationTrial trial;
  trial.heads = {{0, 0}, {0, 1}};
  std::vector<HeadReading> readings(8);
  for (int32_t head = 0; head < 8; ++head) readings[static_cast<size_t>(head)].id = {0, head};
  const VerdictRule rule;
  trial.labels = draw_label_sets(trial.heads, readings, 27, 1);
  trial.test = LabelTest::plan(rule.level, trial.labels.exist, rule);
  trial.labelled_examples = kLabelled;
  for (const auto& reading : readings) trial.whole_layers.push_back(reading.id);
  return {0, BehaviourMetric::kRepeatedLoss, 0, std::move(trial)};
}

std::vector<double> losses(double mean, size_t examples = kExamples) {
  std::vector<double> all(examples, mean);
  for (size_t i = 0; i < examples; ++i) all[i] += i % 2 == 0 ? .01 : -.01;
  return all;
}

/// Labels run in a later sitting, at whose weights the loss without ablation is `baseline`, the
/// circuit's effect `own` and that of every label set `labelled`.
AblationReport judged(double baseline, double own, double labelled) {
  const VerdictRule rule;
  Verification verification = two_of_eight();
  verification.sit(losses(3));
  EXPECT_FALSE(verification.wants_own());
  verification.enter(losses(4), rule);  // effect 1
  verification.sit(losses(baseline));
  bool asked = false;
  while (const auto next = verification.trial.next()) {
    if (verification.wants_own()) {
      EXPECT_FALSE(asked);
      asked = true;
      EXPECT_EQ(next->kind, AblationTrial::Pass::Kind::kLabelSet);
      verification.enter_own(losses(baseline + own, next->examples));
    }
    const bool label = next->kind == AblationTrial::Pass::Kind::kLabelSet;
    verification.enter(losses(baseline + (label ? labelled : own), next->examples), rule);
  }
  EXPECT_TRUE(asked);
  AblationReport report;
  verification.trial.judge(rule, report);
  return report;
}

TEST(Verification, RanksLabelSetsAgainstTheCircuitAtTheSameWeights) {
  // The circuit has grown since: sets that reach its first effect do not reach its present one.
  EXPECT_EQ(judged(2, 2, 1.5).verdict, CircuitState::kVerified);
  // It has shrunk: sets below its first effect reach its present one.
  const AblationReport shrunk = judged(3.5, .5, .8);
  EXPECT_EQ(shrunk.verdict, CircuitState::kUnspecific) << shrunk.reason;
  EXPECT_GE(shrunk.p_value, .5);
}

TEST(Verification, ReadsOtherPassesAgainstTheBaselineOfTheirSitting) {
  const AblationReport report = judged(2, 2, 1.5);
  EXPECT_NEAR(report.effect, 1, 1e-12);
  EXPECT_NEAR(report.upper_bound_effect, 2, 1e-12);
}

TEST(Verification, RefusesASittingOfAnotherBatch) {
  Verification verification = two_of_eight();
  verification.sit(losses(3));
  EXPECT_THROW(verification.sit(losses(3, kExamples - 1)), std::runtime_error);
}

}  // namespace
}  // namespace headscope
