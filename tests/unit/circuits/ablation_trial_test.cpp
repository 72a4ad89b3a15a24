#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "headscope/ablation.h"

namespace headscope {
namespace {

using Heads = std::vector<HeadId>;

std::vector<HeadReading> readings(int32_t layers, int32_t heads) {
  std::vector<HeadReading> all;
  for (int32_t layer = 0; layer < layers; ++layer) {
    for (int32_t head = 0; head < heads; ++head) {
      all.emplace_back().id = {layer, head};
      all.back().output_norm = 1;
      all.back().patterns.assign(1, {.selectivity = 1});
    }
  }
  return all;
}

TEST(LabelSets, AreDistinctOfTheSameSizesAndNeverTheCircuit) {
  const Heads circuit = {{0, 0}, {0, 3}, {1, 1}};
  const auto labels = draw_label_sets(circuit, readings(2, 8), 100, 5);
  EXPECT_EQ(labels.exist, 28 * 8);
  EXPECT_EQ(labels.sets.size(), 100u);
  EXPECT_EQ((std::set<Heads>(labels.sets.begin(), labels.sets.end())).size(), 100u);
  bool overlaps = false;
  for (const Heads& set : labels.sets) {
    EXPECT_NE(set, circuit);
    EXPECT_EQ(set.size(), 3u);
    EXPECT_EQ(std::count_if(set.begin(), set.end(), [](HeadId id) { return id.layer == 0; }), 2);
    overlaps = overlaps || std::count(set.begin(), set.end(), circuit[0]) > 0;
  }
  EXPECT_TRUE(overlaps);
  EXPECT_EQ(draw_label_sets(circuit, readings(2, 8), 100, 5).sets, labels.sets);
}

TEST(LabelSets, AreAllThatExistWhereMoreAreWanted) {
  EXPECT_EQ(draw_label_sets(Heads{{0, 2}}, readings(1, 8), 100, 5).sets.size(), 7u);
  EXPECT_TRUE(draw_label_sets(Heads{{0, 0}, {0, 1}}, readings(1, 2), 9, 5).sets.empty());
}

// The chance of passing under exchangeable effects, exactly: the rank of the circuit among `last`
// others is uniform, and the place of the one stronger set among them.
double chance_of_passing(const LabelTest& test) {
  const auto first = static_cast<double>(test.first), last = static_cast<double>(test.last);
  double chance = 0;
  if (test.after(test.first, 0) == LabelTest::Answer::kPassed) chance += 1 / (first + 1);
  if (test.after(test.last, 1) == LabelTest::Answer::kPassed) chance += first / (last * (last + 1));
  return chance;
}

TEST(LabelTest, KeepsItsLevelOverBothLooks) {
  for (const double exist : {28., 56., 120., 560., 4368., 1e9}) {
    for (const double left : {.05, .02, .008}) {
      const auto test = LabelTest::plan(left, exist, {});
      EXPECT_LE(test.level, left);
      if (test.exhaustive) {
        EXPECT_EQ(test.last, exist - 1);
        continue;
      }
      EXPECT_LE(chance_of_passing(test), test.level * (1 + 1e-9)) << exist << ' ' << left;
    }
  }
}

TEST(LabelTest, AllowsOneStrongerSetOnTheSecondLook) {
  const auto test = LabelTest::plan(.05, 4368, {});
  EXPECT_EQ(test.first, 39);
  EXPECT_EQ(test.last, 88);
  EXPECT_EQ(test.after(38, 0), LabelTest::Answer::kOpen);
  EXPECT_EQ(test.after(39, 0), LabelTest::Answer::kPassed);
  EXPECT_EQ(test.after(39, 1), LabelTest::Answer::kOpen);
  EXPECT_EQ(test.after(88, 1), LabelTest::Answer::kPassed);
  EXPECT_EQ(test.after(3, 2), LabelTest::Answer::kFailed);
}

// 6 of 8 heads: 28 sets, p = 1/28 at best, above six tenths of .05 and below .05.
TEST(LabelTest, TakesTheSmallestPWhereItIsAllThereIs) {
  const auto test = LabelTest::plan(.05, 28, {});
  EXPECT_TRUE(test.exhaustive && test.possible());
  EXPECT_EQ(test.level, 1 / 28.);
  EXPECT_EQ(test.after(27, 0), LabelTest::Answer::kPassed);
  EXPECT_EQ(test.after(5, 1), LabelTest::Answer::kFailed);
  EXPECT_FALSE(LabelTest::plan(.05, 8, {}).possible());
  EXPECT_FALSE(LabelTest::plan(0, 1000, {}).possible());
}

/// Runs a trial on heads whose effects add up, the same noise in every pass.
struct Bench {
  explicit Bench(Heads circuit, double each, double others)
      : heads(readings(1, 16)),
        trial(AblationTrial::of(circuit, heads, 0, {}, rule, rule.level)),
        circuit(std::move(circuit)),
        each(each),
        others(others) {
    trial.losses.baseline = losses({}, 64);
  }
  std::vector<double> losses(const Heads& ablated, size_t examples) const {
    double effect = 0;
    for (const HeadId id : ablated)
      effect += std::count(circuit.begin(), circuit.end(), id) > 0 ? each : others;
    std::vector<double> all(examples);
    for (size_t i = 0; i < examples; ++i)
      all[i] = 5 + effect * (1 + .2 * static_cast<double>(i % 5) - .4);
    return all;
  }
  AblationReport run() {
    while (const auto pass = trial.next()) {
      ++passes;
      trial.enter(losses(pass->heads, pass->examples), rule);
    }
    AblationReport report;
    trial.judge(rule, report);
    return report;
  }

  VerdictRule rule;
  std::vector<HeadReading> heads;
  AblationTrial trial;
  Heads circuit;
  double each, others;
  int passes = 0;
};

TEST(AblationTrial, EndsAfterOnePassWhenTheHeadsDoNothing) {
  Bench bench({{0, 0}, {0, 1}, {0, 2}}, 0, 0);
  EXPECT_EQ(bench.run().verdict, CircuitState::kNotCausal);
  EXPECT_EQ(bench.passes, 1);
}

TEST(AblationTrial, VerifiesHeadsThatAloneMatter) {
  Bench bench({{0, 0}, {0, 1}, {0, 2}}, 1, .01);
  const auto report = bench.run();
  EXPECT_EQ(report.verdict, CircuitState::kVerified);
  EXPECT_EQ(report.label_effects.size(), 39u);
  EXPECT_FALSE(std::isnan(report.upper_bound_effect));
}

TEST(AblationTrial, RunsNoLabelSetWhenControlsMatterAsMuch) {
  Bench bench({{0, 0}, {0, 1}, {0, 2}}, 1, .9);
  const auto report = bench.run();
  EXPECT_EQ(report.verdict, CircuitState::kUnspecific);
  EXPECT_TRUE(report.label_effects.empty() && std::isnan(report.p_value));
  EXPECT_FALSE(report.control_effects.empty());
}

TEST(AblationTrial, AsksForFewerExamplesOfALabelSet) {
  Bench bench({{0, 0}, {0, 1}, {0, 2}}, 1, .01);
  bench.run();
  EXPECT_EQ(bench.trial.losses.controls[0].size(), 64u);
  for (const auto& set : bench.trial.losses.labelled) EXPECT_EQ(set.size(), 32u);
}

TEST(AblationTrial, RefusesPassesOutOfTurn) {
  AblationTrial trial;
  EXPECT_THROW(trial.next(), std::logic_error);
  Bench bench({{0, 0}, {0, 1}, {0, 2}}, 0, 0);
  EXPECT_THROW(bench.trial.enter({1, 2}, bench.rule), std::invalid_argument);
  bench.run();
  EXPECT_THROW(bench.trial.enter({1, 2}, bench.rule), std::logic_error);
}

}  // namespace
}  // namespace headscope
