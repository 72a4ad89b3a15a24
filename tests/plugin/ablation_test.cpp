#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "headscope/ablation_runner.h"
#include "tests/support/models/grouped_model.h"
#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using ::testing::ElementsAre;
using testing::GroupedModel;
using ::testing::HasSubstr;
using Heads = std::vector<HeadId>;

constexpr int64_t kContext = 16;
constexpr auto kLoss = AblationMeasure::kLoss;

std::unique_ptr<Monitor> quiet_monitor(Options options = {}) {
  options.log = [](LogLevel, const std::string&) {};
  return std::make_unique<Monitor>(std::move(options), std::vector<std::shared_ptr<Sink>>{});
}

/// A grouped model under a monitor that measures nothing by itself.
struct Watched {
  GroupedModel model;
  std::unique_ptr<Monitor> monitor;

  explicit Watched(at::ScalarType type = at::kFloat) : model(type) {
    Options options;
    options.measure = false;
    monitor = quiet_monitor(options);
    monitor->set_probe(
        ProbeHost{[this](const at::Tensor& tokens) { return model.forward(tokens); }, {}},
        {.vocab_size = GroupedModel::kVocab,
         .context = kContext,
         .examples = 16,
         .micro_batch = 8});
    model.monitor = monitor.get();
  }
};

/// 12 rows of the user's own, each with a query and a target; no effect is large enough for more
/// than the heads' own pass.
AblationRequest own_rows(Heads heads) {
  at::Generator random = at::detail::createCPUGenerator(9);
  AblationRequest request;
  request.heads = std::move(heads);
  request.tokens = at::randint(0, GroupedModel::kVocab, {12, kContext}, random, at::kLong);
  for (int64_t n = 0; n < 12; ++n) {
    request.query_positions.push_back(4 + n);
    request.targets.push_back((7 * n) % GroupedModel::kVocab);
  }
  request.rule.smallest_effect = 1e9;
  return request;
}

/// Where each row's outputs come from when rows are resampled: the next along a random cycle.
std::vector<int64_t> partners(int64_t rows, uint32_t seed) {
  const auto order = RandomState(seed).permutation(rows);
  std::vector<int64_t> partner(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    partner[static_cast<size_t>(order[i])] = order[(i + 1) % order.size()];
  return partner;
}

/// Mean output [D] of a head over rows and positions, in double.
std::vector<double> mean_output(const std::vector<GroupedModel::Forward>& forwards, HeadId id) {
  std::vector<double> sum(GroupedModel::kHeadDim, 0);
  double count = 0;
  for (const auto& forward : forwards) {
    const at::Tensor z = forward.layers[static_cast<size_t>(id.layer)].z.to(at::kDouble);
    for (int64_t n = 0; n < z.size(0); ++n)
      for (int64_t t = 0; t < z.size(2); ++t, ++count)
        for (int64_t d = 0; d < z.size(3); ++d)
          sum[static_cast<size_t>(d)] += z[n][id.head][t][d].item<double>();
  }
  for (double& value : sum) value /= count;
  return sum;
}

struct Case {
  at::ScalarType type;
  Replacement replacement;
  AblatedPositions positions;
};

class OnlyTheChosenHeads : public ::testing::TestWithParam<Case> {};

TEST_P(OnlyTheChosenHeads, ChangeAndTheyAreWhatWasAskedFor) {
  const auto [type, replacement, positions] = GetParam();
  Watched watched(type);
  const Heads heads = {{1, 0}, {1, 3}, {2, 2}};
  AblationRequest request = own_rows(heads);
  request.replacement = replacement;
  request.positions = positions;
  request.resample_seed = 5;
  watched.monitor->ablate(request);

  const auto& forwards = watched.model.forwards;
  const bool resamples = replacement == Replacement::kResample;
  ASSERT_EQ(forwards.size(), resamples ? 6u : 4u);
  const std::vector<GroupedModel::Forward> clean(forwards.begin(), forwards.begin() + 2);
  const auto partner = partners(12, 5);
  for (size_t chunk = 0; chunk < 2; ++chunk) {
    const auto& ablated = forwards[resamples ? 3 + 2 * chunk : 2 + chunk];
    EXPECT_TRUE(ablated.tokens.equal(clean[chunk].tokens));
    const auto row = static_cast<int64_t>(8 * chunk);
    const int64_t rows = ablated.tokens.size(0);
    if (resamples) {
      for (int64_t n = 0; n < rows; ++n) {
        EXPECT_NE(partner[static_cast<size_t>(row + n)], row + n);
        EXPECT_TRUE(forwards[2 + 2 * chunk].tokens[n].equal(
            request.tokens[partner[static_cast<size_t>(row + n)]]));
      }
    }
    // Up to the first ablated layer nothing has changed, and layer 0 gave back the very tensor.
    EXPECT_TRUE(ablated.layers[0].same);
    for (size_t l = 0; l < 2; ++l)
      EXPECT_TRUE(ablated.layers[l].input.equal(clean[chunk].layers[l].input)) << l;
    EXPECT_FALSE(ablated.layers[2].input.equal(clean[chunk].layers[2].input));
    for (const size_t l : {1u, 2u}) {
      const auto& layer = ablated.layers[l];
      for (int32_t h = 0; h < GroupedModel::kHeads; ++h) {
        const HeadId id{static_cast<int32_t>(l), h};
        const at::Tensor before = layer.z.select(1, h), after = layer.given.select(1, h);
        if (std::count(heads.begin(), heads.end(), id) == 0) {
          EXPECT_TRUE(after.equal(before)) << l << "." << h;
          continue;
        }
        const auto mean = mean_output(clean, id);
        for (int64_t n = 0; n < rows; ++n) {
          for (int64_t t = 0; t < kContext; ++t) {
            const bool query = t == request.query_positions[static_cast<size_t>(row + n)];
            if (positions == AblatedPositions::kQuery && !query) {
              EXPECT_TRUE(after[n][t].equal(before[n][t])) << n << " " << t;
            } else if (replacement == Replacement::kZero) {
              EXPECT_TRUE(after[n][t].equal(at::zeros_like(before[n][t])));
            } else if (resamples) {
              EXPECT_TRUE(
                  after[n][t].equal(forwards[2 + 2 * chunk].layers[l].z.select(1, h)[n][t]));
            } else {
              const double unit = type == at::kFloat ? 1e-7 : 4e-3;
              for (int64_t d = 0; d < GroupedModel::kHeadDim; ++d) {
                const double want = mean[static_cast<size_t>(d)];
                EXPECT_NEAR(after[n][t][d].item<double>(), want, unit * std::abs(want) + 1e-12);
              }
            }
          }
        }
      }
    }
  }
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const auto type : {at::kFloat, at::kBFloat16})
    for (const auto replacement : {Replacement::kZero, Replacement::kMean, Replacement::kResample})
      for (const auto positions : {AblatedPositions::kAll, AblatedPositions::kQuery})
        all.push_back({type, replacement, positions});
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ablation, OnlyTheChosenHeads, ::testing::ValuesIn(cases()));

TEST(Ablation, AReferenceGivesMeansAndRowsInPlaceOfTheBatch) {
  Watched watched;
  AblationRequest request = own_rows({{1, 2}});
  at::Generator random = at::detail::createCPUGenerator(2);
  request.reference = at::randint(0, GroupedModel::kVocab, {3, kContext}, random, at::kLong);
  request.replacement = Replacement::kMean;
  watched.monitor->ablate(request);
  auto& forwards = watched.model.forwards;
  ASSERT_EQ(forwards.size(), 5u);  // baseline, the reference, ablated
  EXPECT_TRUE(forwards[2].tokens.equal(request.reference));
  const auto mean = mean_output({forwards[2]}, {1, 2});
  for (int64_t d = 0; d < GroupedModel::kHeadDim; ++d)
    EXPECT_NEAR(forwards[3].layers[1].given[0][2][0][d].item<double>(),
                mean[static_cast<size_t>(d)], 1e-7);

  forwards.clear();
  request.replacement = Replacement::kResample;
  watched.monitor->ablate(request);
  const auto order = RandomState(request.resample_seed).permutation(3);
  for (int64_t n = 0; n < 8; ++n)
    EXPECT_TRUE(forwards[2].tokens[n].equal(request.reference[order[static_cast<size_t>(n % 3)]]));
}

/// Measures of one row by plain loops.
struct Direct {
  double loss, top1, top5, logit;
};
Direct direct(const at::Tensor& logits, int64_t target) {
  std::vector<double> values;
  for (int64_t v = 0; v < logits.size(0); ++v) values.push_back(logits[v].item<double>());
  const double own = values[static_cast<size_t>(target)];
  double sum = 0;
  int64_t above = 0;
  for (const double value : values) {
    sum += std::exp(value - own);
    above += value > own ? 1 : 0;
  }
  return {std::log(sum), above < 1 ? 1. : 0., above < 5 ? 1. : 0., own};
}

TEST(Ablation, MeasuresAreThoseOfTheLogits) {
  Watched watched;
  const Heads heads = {{0, 1}, {2, 3}};
  AblationRequest request = own_rows(heads);
  // The second row's target is the likeliest token there, so that something is right.
  GroupedModel plain;
  request.targets[1] = plain.forward(request.tokens.narrow(0, 0, 8))[1][request.query_positions[1]]
                           .argmax()
                           .item<int64_t>();
  const AblationResult result = watched.monitor->ablate(request);
  for (const bool ablated : {false, true}) {
    if (ablated) plain.zeroed = {heads.begin(), heads.end()};
    const AblationPass& pass = ablated ? result.ablated : result.baseline;
    EXPECT_EQ(pass.heads, ablated ? heads : Heads());
    ByMeasure<double> sums;
    for (int64_t n = 0; n < 12; ++n) {
      const auto row = static_cast<size_t>(n);
      const at::Tensor logits =
          plain.forward(request.tokens.narrow(0, n < 8 ? 0 : 8, n < 8 ? 8 : 4))[n % 8];
      const Direct want = direct(logits[request.query_positions[row]], request.targets[row]);
      // Losses are taken in f32 where the logits are: its rounding at scores of some hundred.
      EXPECT_NEAR(pass.examples[kLoss][row], want.loss, 2e-5);
      EXPECT_EQ(pass.examples[AblationMeasure::kTop1][row], want.top1);
      EXPECT_EQ(pass.examples[AblationMeasure::kTop5][row], want.top5);
      EXPECT_EQ(pass.examples[AblationMeasure::kTargetLogit][row], want.logit);
      for (const auto measure : kAblationMeasures)
        sums[measure] += pass.examples[measure][row] / 12;
    }
    for (const auto measure : kAblationMeasures) {
      EXPECT_NEAR(pass.measures[measure].mean, sums[measure], 1e-12);
      EXPECT_NEAR(result.ablated.measures[measure].change,
                  result.ablated.measures[measure].mean - result.baseline.measures[measure].mean,
                  1e-12);
    }
  }
  EXPECT_GT(result.baseline.measures[AblationMeasure::kTop1].mean, 0);
  EXPECT_EQ(result.report.effect, result.ablated.measures[kLoss].change);
  EXPECT_EQ(result.report.effect_low, result.ablated.measures[kLoss].low);
  EXPECT_EQ(result.report.effect_high, result.ablated.measures[kLoss].high);
  EXPECT_EQ(result.report.verdict, CircuitState::kNotCausal);
  EXPECT_EQ(result.report.metric, "target_loss");
}

TEST(Ablation, ALossOfOnesOwnIsTakenRowByRow) {
  Watched watched;
  AblationRequest request = own_rows({{1, 1}});
  const AblationResult by_targets = watched.monitor->ablate(request);
  const auto targets = std::exchange(request.targets, {});
  request.loss = [&](const ForwardFunction& forward, const at::Tensor& tokens,
                     const at::Tensor& rows) {
    const at::Tensor logits = forward(tokens);
    at::Tensor losses = at::empty({tokens.size(0)}, at::kDouble);
    for (int64_t n = 0; n < tokens.size(0); ++n) {
      const auto row = static_cast<size_t>(rows[n].item<int64_t>());
      losses[n] = direct(logits[n][request.query_positions[row]], targets[row]).loss;
    }
    return losses;
  };
  const AblationResult own = watched.monitor->ablate(request);
  EXPECT_EQ(own.report.metric, "own_loss");
  EXPECT_TRUE(own.ablated.examples[AblationMeasure::kTop1].empty());
  for (size_t n = 0; n < 12; ++n)
    EXPECT_NEAR(own.ablated.examples[kLoss][n], by_targets.ablated.examples[kLoss][n], 2e-5);
}

TEST(Ablation, ALossIsToldWhichRowsOfTheRequestItIsGiven) {
  Watched watched;
  AblationRequest request = own_rows({{1, 1}});
  request.targets.clear();
  request.tokens[5] = request.tokens[2];
  request.query_positions[5] = request.query_positions[2];
  std::vector<int64_t> told;
  request.loss = [&](const ForwardFunction& forward, const at::Tensor& tokens,
                     const at::Tensor& rows) {
    forward(tokens);
    EXPECT_EQ(rows.size(0), tokens.size(0));
    for (int64_t n = 0; n < rows.size(0); ++n) {
      told.push_back(rows[n].item<int64_t>());
      EXPECT_TRUE(tokens[n].equal(request.tokens[told.back()]));
    }
    return at::zeros({tokens.size(0)});
  };
  const AblationResult result = watched.monitor->ablate(request);
  told.resize(result.rows.size());  // of the baseline
  EXPECT_THAT(told, ElementsAre(0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11));
  EXPECT_EQ(told, result.rows);
}

TEST(Ablation, SingleHeadsAndTheUpperBoundHaveAllRowsWhenAskedFor) {
  Watched watched;
  AblationRequest request = own_rows({{0, 1}, {2, 3}});
  request.rule.labelled_examples = 5;
  request.rule.smallest_effect = -1e9;  // all that a verdict may want is run
  request.controls.wanted = 2;
  const auto lengths = [](const std::vector<AblationPass>& passes) {
    std::vector<size_t> sizes;
    for (const AblationPass& pass : passes) sizes.push_back(pass.examples[kLoss].size());
    return sizes;
  };
  const AblationResult few = watched.monitor->ablate(request);
  EXPECT_THAT(lengths(few.single_heads), ElementsAre(5, 5));
  EXPECT_THAT(lengths(few.whole_layers), ElementsAre(5));
  request.single_heads = request.whole_layers = true;
  for (const double smallest : {-1e9, 1e9}) {  // or nothing of it
    request.rule.smallest_effect = smallest;
    const AblationResult all = watched.monitor->ablate(request);
    EXPECT_THAT(lengths(all.single_heads), ElementsAre(12, 12));
    EXPECT_THAT(lengths(all.whole_layers), ElementsAre(12));
    EXPECT_EQ(all.whole_layers[0].heads.size(), 2u * GroupedModel::kHeads);
    EXPECT_NEAR(all.report.upper_bound_effect, all.whole_layers[0].measures[kLoss].change, 1e-12);
    ASSERT_EQ(all.report.single_head_effects.size(), 2u);
    EXPECT_NEAR(all.report.single_head_effects[1], all.single_heads[1].measures[kLoss].change,
                1e-12);
  }
}

TEST(Ablation, TheReferencesDrawsHaveAMeanAndASpread) {
  Watched watched;
  AblationRequest request = own_rows({{0, 1}, {2, 3}});
  request.reference_seeds = {1, 7, 42};
  const AblationResult result = watched.monitor->ablate(request);
  for (const auto measure : kAblationMeasures) {
    double x[3];
    for (size_t i = 0; i < 3; ++i) x[i] = result.reference_draws[i].measures[measure].mean;
    const double mean = (x[0] + x[1] + x[2]) / 3;
    // Half the mean squared difference of all ordered pairs, those of one value with itself too.
    const double variance =
        (std::pow(x[0] - x[1], 2) + std::pow(x[0] - x[2], 2) + std::pow(x[1] - x[2], 2)) / 9;
    const MeasureSpread& spread = result.reference_spread[measure];
    EXPECT_NEAR(spread.mean, mean, 1e-9 * std::abs(mean));
    EXPECT_NEAR(spread.change, mean - result.baseline.measures[measure].mean, 1e-9);
    EXPECT_NEAR(spread.sd, std::sqrt(variance), 1e-9);
  }
  EXPECT_GT(result.reference_spread[kLoss].sd, 0);
  request.reference_seeds = {1};
  EXPECT_TRUE(std::isnan(watched.monitor->ablate(request).reference_spread[kLoss].sd));
}

TEST(Ablation, RowsGivenTwiceAreRunOnce) {
  Watched watched;
  AblationRequest request = own_rows({{1, 1}});
  request.tokens[5] = request.tokens[2];
  request.tokens[7] = request.tokens[2];
  request.query_positions[5] = request.query_positions[2];
  request.targets[5] = request.targets[2];  // row 7 has another query
  const AblationResult result = watched.monitor->ablate(request);
  EXPECT_THAT(result.rows, ElementsAre(0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11));
  EXPECT_EQ(result.report.examples, 11);
}

TEST(Ablation, WithFewExamplesThereAreMeasuresAndNoVerdict) {
  Watched watched;
  AblationRequest request = own_rows({{1, 1}});
  request.tokens = request.tokens.narrow(0, 0, 7);
  request.query_positions.resize(7);
  request.targets.resize(7);
  const AblationResult result = watched.monitor->ablate(request);
  EXPECT_EQ(result.report.verdict, CircuitState::kInconclusive);
  EXPECT_THAT(result.report.reason, HasSubstr("7 distinct examples"));
  EXPECT_TRUE(std::isfinite(result.ablated.measures[kLoss].change));
}

TEST(Ablation, ControlsAndSingleHeadsAreRunWhenAskedFor) {
  Watched watched;
  AblationRequest request = own_rows({{0, 1}, {2, 3}});
  request.always_controls = request.single_heads = true;
  request.controls.wanted = 4;
  request.reference_seeds = {123, 7};
  const AblationResult result = watched.monitor->ablate(request);
  ASSERT_EQ(result.controls.size(), 4u);
  double mean = 0;
  for (const AblationPass& control : result.controls) {
    EXPECT_EQ(control.heads.size(), 2u);
    for (const HeadId id : request.heads)
      EXPECT_EQ(std::count(control.heads.begin(), control.heads.end(), id), 0);
    mean += control.measures[kLoss].change / 4;
  }
  EXPECT_NEAR(result.report.control_mean, mean, 1e-12);
  const Specificity want = specificity(result.ablated.measures[kLoss].change, mean);
  EXPECT_EQ(result.specificity[kLoss].state, want.state);
  ASSERT_EQ(result.single_heads.size(), 2u);
  GroupedModel plain;
  plain.zeroed = {{2, 3}};
  const at::Tensor logits = plain.forward(request.tokens.narrow(0, 0, 8));
  EXPECT_NEAR(result.single_heads[1].examples[kLoss][0],
              direct(logits[0][request.query_positions[0]], request.targets[0]).loss, 2e-5);
  ASSERT_EQ(result.reference_draws.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    RandomState random(request.reference_seeds[i]);
    EXPECT_EQ(result.reference_draws[i].heads,
              matched_random_reference(request.heads, GroupedModel::kHeads, random));
  }
}

TEST(Ablation, SpecificityNeverDividesByZeroOrAnotherSign) {
  using State = Specificity::State;
  EXPECT_EQ(specificity(-3, -1.5).state, State::kRatio);
  EXPECT_DOUBLE_EQ(specificity(-3, -1.5).ratio, 2);
  EXPECT_EQ(specificity(3, -1e-9).state, State::kOppositeSign);
  EXPECT_EQ(specificity(3, 0).state, State::kNoChange);
  EXPECT_EQ(specificity(3, kNaN).state, State::kUnknown);
  for (const double control : {-1., 0., kNaN})
    EXPECT_TRUE(std::isnan(specificity(3, control).ratio)) << control;
}

}  // namespace
}  // namespace headscope
