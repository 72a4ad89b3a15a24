#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "headscope/ablation_runner.h"
#include "plugin/examples/ablate_heads/model.h"
#include "tests/support/errors.h"
#include "tests/support/models/grouped_model.h"
#include "tests/support/models/tiny_model.h"
#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::GroupedModel;
using ::testing::HasSubstr;
using testing::tiny_training;
using testing::TinyModel;
using Heads = std::vector<HeadId>;

Options quiet(Options options = {}) {
  options.log = [](LogLevel, const std::string&) {};
  return options;
}

// --- the reference's draws

/// Layers and heads of a published spec, in its order.
Heads heads_of(const nlohmann::ordered_json& results, const std::string& name) {
  Heads heads;
  for (const auto& result : results) {
    if (result.value("name", "").find(name) == std::string::npos) continue;
    for (const auto& [layer, list] : result.at("spec").items())
      for (const auto& head : list) heads.push_back({std::stoi(layer), head.get<int32_t>()});
    return heads;
  }
  throw std::invalid_argument(name);
}

/// A monitor over the shape of Pythia-1B: 16 layers of 8 heads, whose forward is next to nothing.
std::unique_ptr<Monitor> pythia_shaped() {
  auto monitor = std::make_unique<Monitor>(quiet(), std::vector<std::shared_ptr<Sink>>{});
  monitor->set_probe(
      ProbeHost{[monitor = monitor.get()](const at::Tensor& tokens) {
                  const at::Tensor z = at::ones({tokens.size(0), 8, tokens.size(1), 2});
                  for (int64_t layer = 0; layer < 16; ++layer)
                    static_cast<void>(monitor->observe(layer, z, z, z, z));
                  return at::zeros({tokens.size(0), tokens.size(1), 32});
                },
                {}},
      {.vocab_size = 32, .context = 16, .examples = 8});
  return monitor;
}

TEST(AblationDraws, RepeatTheReferencesSweepFromOneGenerator) {
  const auto golden = test::pythia1b();
  const auto& results = golden.at("ablation_threshold_sweep").at("results");
  const auto monitor = pythia_shaped();
  RandomState sweep(123);
  for (const std::string threshold : {"2x", "10x", "30x", "50x"}) {
    AblationRequest request;
    request.heads = heads_of(results, "screen_>=" + threshold);
    request.reference_sweep = &sweep;
    const AblationResult result = monitor->ablate(request);
    ASSERT_EQ(result.reference_draws.size(), 1u);
    EXPECT_EQ(result.reference_draws[0].heads, heads_of(results, "matched_random_>=" + threshold))
        << threshold;
    if (threshold == "50x") {
      EXPECT_EQ(result.reference_draws[0].heads, Heads({{4, 0}, {7, 6}, {7, 7}}));
    }
  }
}

TEST(AblationDraws, TakeAFreshGeneratorForEachSeed) {
  const auto golden = test::pythia1b();
  AblationRequest request;
  request.heads = heads_of(golden.at("ablation_threshold_sweep").at("results"), "screen_>=10x");
  request.reference_seeds = {999, 1};
  Heads want;
  for (const auto& [layer, list] :
       golden.at("matched_random_seed_sweep").at("fresh_seed_spec_1").items())
    for (const auto& head : list) want.push_back({std::stoi(layer), head.get<int32_t>()});
  const AblationResult result = pythia_shaped()->ablate(request);
  ASSERT_EQ(result.reference_draws.size(), 2u);
  EXPECT_EQ(result.reference_draws[1].heads, want);
}

// --- verification is one caller

void expect_same(const AblationReport& a, const AblationReport& b) {
  const auto same = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  EXPECT_EQ(a.metric, b.metric);
  EXPECT_EQ(a.heads, b.heads);
  EXPECT_EQ(a.baseline_loss, b.baseline_loss);
  EXPECT_EQ(a.ablated_loss, b.ablated_loss);
  EXPECT_EQ(a.effect_low, b.effect_low);
  EXPECT_EQ(a.effect_high, b.effect_high);
  EXPECT_EQ(a.control_sets, b.control_sets);
  EXPECT_EQ(a.control_effects, b.control_effects);
  EXPECT_TRUE(same(a.difference_low, b.difference_low));
  EXPECT_EQ(a.label_effects, b.label_effects);
  EXPECT_TRUE(same(a.p_value, b.p_value));
  EXPECT_EQ(a.single_head_effects, b.single_head_effects);
  EXPECT_TRUE(same(a.upper_bound_effect, b.upper_bound_effect));
  EXPECT_EQ(a.verdict, b.verdict);
  EXPECT_EQ(a.reason, b.reason);
}

TEST(AblationRequests, AVerificationIsTheRequestOfItsSettings) {
  induction::Model model;
  Options options = quiet();
  options.rules.mass_floor = 0;
  options.schedule.longest_probe_gap = 1;
  options.schedule.budget = 0;
  model.monitor = std::make_shared<Monitor>(options, std::vector<std::shared_ptr<Sink>>{});
  ProbeOptions probe{.vocab_size = 32, .context = 32, .examples = 64};
  probe.patterns = testing::pinned_patterns();
  for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = 40;
  probe.verify = false;  // by hand below: the first attempt
  model.monitor->set_probe(
      ProbeHost{[&](const at::Tensor& tokens) { return model.forward(tokens); }, {}}, probe);
  for (int64_t step = 0; step < 6; ++step)
    auto scope = model.monitor->begin_step({.step = step, .tokens_seen = 1000. * step});
  const auto reports = model.monitor->verify();
  ASSERT_FALSE(reports.empty());
  bool verified = false;
  for (const AblationReport& report : reports) {
    AblationRequest request;
    request.heads = report.heads;
    request.batch = report.metric == "planted_loss" ? BehaviourMetric::kPlantedLoss
                                                    : BehaviourMetric::kRepeatedLoss;
    request.pattern = report.pattern;
    request.rule = options.verdict;
    request.controls = options.controls;
    for (size_t p = 0; p < probe.patterns.size(); ++p)
      if (probe.patterns[p].name == report.pattern) request.controls.seed += p;
    const AblationResult result = model.monitor->ablate(request);
    expect_same(result.report, report);
    verified = verified || report.verdict == CircuitState::kVerified;
    EXPECT_EQ(result.label_sets.size(), report.label_effects.size());
  }
  EXPECT_TRUE(verified) << "or the comparison says little";
}

// --- the host stays as it was

/// A run in which, between steps, heads are ablated in every way; `ask`: or nothing is.
std::pair<std::vector<double>, at::Tensor> training(bool ask) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(5);
  TinyModel model(2);
  model.dropout = 0.2;
  Options options;
  options.measure = false;
  Attached attached(model, options);
  std::vector<double> losses;
  for (int64_t step = 0; step < 12; ++step) {
    for (const double loss : tiny_training(model, attached.monitor.get(), step, step + 1))
      losses.push_back(loss);
    if (!ask) continue;
    AblationRequest request;
    request.heads = {{0, 1}, {1, 2}};
    request.replacement = static_cast<Replacement>(step % 3);
    request.positions = static_cast<AblatedPositions>(step % 2);
    request.batch = step < 6 ? BehaviourMetric::kPlantedLoss : BehaviourMetric::kRepeatedLoss;
    request.single_heads = request.always_controls = true;
    EXPECT_EQ(attached.monitor->ablate(request).ablated.examples[AblationMeasure::kLoss].size(),
              16u);
  }
  at::Tensor state = model.parameters()[0].detach().clone();
  EXPECT_EQ(model.calls.item<int64_t>(), 12) << "a buffer that every forward writes";
  return {losses, at::cat({state.flatten(), generator.get_state().to(at::kFloat)})};
}

TEST(AblationRequests, LeaveTrainingTheSameBits) {
  const auto alone = training(false), asked = training(true);
  EXPECT_EQ(asked.first, alone.first);
  EXPECT_TRUE(asked.second.equal(alone.second));
}

TEST(AblationRequests, HandTheLossesExceptionOnAndPutTheHostBack) {
  TinyModel model(2);
  Attached attached(model);
  struct Mine {};
  AblationRequest request;
  request.heads = {{0, 1}};
  request.tokens = testing::tiny_batch(0, 8);
  int64_t calls = 0;
  request.loss = [&](const ForwardFunction& forward, const at::Tensor& tokens,
                     const at::Tensor&) -> at::Tensor {
    EXPECT_FALSE(model.is_training());
    EXPECT_FALSE(at::GradMode::is_enabled());
    forward(tokens);
    if (++calls == 2) {
      at::rand({3});
      at::GradMode::set_enabled(true);
      at::autocast::set_autocast_enabled(at::kCPU, true);
      throw Mine{};
    }
    return at::zeros({tokens.size(0)});
  };
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor before = generator.get_state();
  EXPECT_THROW(attached.monitor->ablate(request), Mine);
  EXPECT_EQ(calls, 2);
  EXPECT_TRUE(model.is_training());
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_TRUE(generator.get_state().equal(before));
  const at::Tensor z = at::randn({2, 4, 8, 4});
  EXPECT_TRUE(attached.monitor->observe(0, z, z, z, z).is_same(z));
  // And the next request is answered.
  calls = -100;
  EXPECT_EQ(attached.monitor->ablate(request).ablated.examples[AblationMeasure::kLoss].size(), 8u);
}

TEST(AblationRequests, GoThroughZeroEditTheSame) {
  AblationRequest request;
  request.heads = {{1, 2}, {0, 3}};
  request.replacement = Replacement::kResample;
  request.positions = AblatedPositions::kQuery;
  TinyModel told(2), seen(2);
  Attached first(told), second(seen);
  const AblationResult want = first.monitor->ablate(request);
  seen.monitor = nullptr;
  second.monitor->attach_zero_edit(2);
  const AblationResult got = second.monitor->ablate(request);
  EXPECT_EQ(got.ablated.examples[AblationMeasure::kLoss],
            want.ablated.examples[AblationMeasure::kLoss]);
  EXPECT_NE(got.ablated.examples[AblationMeasure::kLoss],
            got.baseline.examples[AblationMeasure::kLoss]);
}

TEST(AblationRequests, FailWhenAnAblatedLayerDoesNotReport) {
  TinyModel model(2);
  Attached attached(model);
  int64_t forwards = 0;
  model.on_forward = [&] { model.silent_layer = ++forwards >= 2 ? 1 : -1; };
  AblationRequest request;
  request.heads = {{1, 0}};
  EXPECT_THAT(testing::error_of<std::runtime_error>([&] { attached.monitor->ablate(request); }),
              HasSubstr("layer 1 did not report"));
}

// --- what cannot be meant

struct Refusal {
  std::string name;
  std::function<void(AblationRequest&)> spoil;
  std::string says;
};

class Refused : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refused, NamingValueAndFix) {
  TinyModel model(3);
  Attached attached(model);
  AblationRequest request;
  request.heads = {{0, 1}};
  request.tokens = testing::tiny_batch(0, 8);
  request.targets.assign(8, 3);
  GetParam().spoil(request);
  EXPECT_THAT(testing::error_of<std::invalid_argument>([&] { attached.monitor->ablate(request); }),
              HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    AblationRequests, Refused,
    ::testing::Values(
        Refusal{"NoHeads", [](auto& r) { r.heads.clear(); }, "no heads are given; name one"},
        Refusal{"NoSuchLayer",
                [](auto& r) {
                  r.heads = {{3, 1}};
                },
                "there is no head 3.1; there are layers 0..2 with heads 0..3"},
        Refusal{"NoSuchHead",
                [](auto& r) {
                  r.heads = {{0, 1}, {1, 4}};
                },
                "there is no head 1.4"},
        Refusal{"NegativeHead",
                [](auto& r) {
                  r.heads = {{0, -1}};
                },
                "there is no head 0.-1"},
        Refusal{"HeadTwice",
                [](auto& r) {
                  r.heads = {{0, 1}, {0, 1}};
                },
                "0.1 is given twice"},
        Refusal{"TargetOutside", [](auto& r) { r.targets[2] = 32; },
                "targets has 32 for row 2, outside 0..31"},
        Refusal{"FewTargets", [](auto& r) { r.targets.resize(3); }, "3 values for 8 rows"},
        Refusal{"NoTargets", [](auto& r) { r.targets.clear(); }, "give a target for each row"},
        Refusal{"QueryOutside", [](auto& r) { r.query_positions.assign(8, 16); },
                "query_positions has 16 for row 0, outside 0..15"},
        Refusal{"TokenOutside", [](auto& r) { r.tokens[1][2] = 99; },
                "tokens has the id 99, and the vocabulary is 0..31"},
        Refusal{"TokensOfFloat", [](auto& r) { r.tokens = r.tokens.to(at::kFloat); }, "[N, T] i64"},
        Refusal{"TargetsWithoutTokens", [](auto& r) { r.tokens = at::Tensor(); },
                "give tokens too"},
        Refusal{"ReferenceForZeros", [](auto& r) { r.reference = r.tokens; }, "zeros need none"},
        Refusal{"ShortReference",
                [](auto& r) {
                  r.replacement = Replacement::kResample;
                  r.reference = r.tokens.narrow(1, 0, 9);
                },
                "reference has 9 tokens a row, the batch 16"},
        Refusal{"OneRow",
                [](auto& r) {
                  r.replacement = Replacement::kResample;
                  r.tokens = r.tokens.narrow(0, 0, 1);
                  r.targets.resize(1);
                },
                "there is 1 distinct row"},
        Refusal{"UnknownPattern", [](auto& r) { r.pattern = "inductoin"; },
                "no pattern 'inductoin'; there are induction, "},
        Refusal{"PatternBeforeAProbe", [](auto& r) { r.pattern = "induction"; },
                "none has run; leave pattern empty"},
        Refusal{"Confidence", [](auto& r) { r.rule.confidence = 1; },
                "rule.confidence must lie between 0 and 1, got 1"}),
    [](const auto& info) { return info.param.name; });

TEST(AblationRequests, NeedAProbeAClosedStepAndLogits) {
  TinyModel model(2);
  Attached attached(model, {}, /*with_probe=*/false);
  AblationRequest request;
  request.heads = {{0, 1}};
  const auto ask = [&] { attached.monitor->ablate(request); };
  EXPECT_THAT(testing::error_of<std::invalid_argument>(ask), HasSubstr("call set_probe first"));
  attached.monitor->set_probe(
      model,
      [&](const at::Tensor& tokens) {
        model.forward(tokens);
        return at::Tensor();
      },
      testing::tiny_probe());
  EXPECT_THAT(testing::error_of<std::runtime_error>(ask),
              HasSubstr("must return logits [N, T, V]"));
  {
    auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0});
    EXPECT_THAT(testing::error_of<std::invalid_argument>(ask), HasSubstr("a step is open"));
  }
  attached.monitor->close();
  EXPECT_THAT(testing::error_of<std::invalid_argument>(ask), HasSubstr("the monitor is closed"));
}

}  // namespace
}  // namespace headscope
