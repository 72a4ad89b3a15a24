#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "headscope/ablation_runner.h"
#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::tiny_batch;
using testing::tiny_training;
using testing::TinyModel;

/// A monitor under whose thresholds the pattern forms in whatever heads there are.
struct Forming {
  TinyModel model{2};
  Attached attached;

  explicit Forming(double formed_at_256 = 18) : attached(model, rules(), false) {
    ProbeOptions probe = testing::tiny_probe();
    for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = formed_at_256;
    attached.monitor->set_probe(
        model, [this](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  }
  static Options rules() {
    Options options;
    options.rules.mass_floor = 0.0;
    return options;
  }
};

TEST(Verification, RunsOnceACircuitIsFormedAndLeavesTrainingAlone) {
  Forming forming;
  const auto losses = tiny_training(forming.model, forming.attached.monitor.get(), 0, 30);
  const RunReport report = forming.attached.monitor->report();
  ASSERT_FALSE(report.ablations.empty());
  EXPECT_EQ(report.health.errors.at("ablation"), 0u);
  TinyModel alone(2);
  EXPECT_EQ(losses, tiny_training(alone, nullptr, 0, 30));
  for (const AblationReport& ablation : report.ablations) {
    EXPECT_TRUE(std::isfinite(ablation.baseline_loss)) << ablation.metric;
    EXPECT_NEAR(ablation.effect, ablation.ablated_loss - ablation.baseline_loss, 1e-12);
    EXPECT_EQ(ablation.examples, 16);
    for (const auto& set : ablation.control_sets) {
      for (const HeadId& id : set) {
        EXPECT_EQ(std::count(ablation.heads.begin(), ablation.heads.end(), id), 0)
            << "a control is one of the picked";
      }
    }
  }
}

TEST(Verification, DuringTrainingOneMetricDecidesAndOnRequestAllAreShown) {
  Forming forming;
  tiny_training(forming.model, forming.attached.monitor.get(), 0, 30);
  for (const AblationReport& ablation : forming.attached.monitor->report().ablations) {
    EXPECT_TRUE(ablation.gate);
  }
  std::map<std::string, std::set<std::string>> metrics;
  std::map<std::string, int> gates;
  for (const AblationReport& ablation : forming.attached.monitor->verify()) {
    metrics[ablation.pattern].insert(ablation.metric);
    gates[ablation.pattern] += ablation.gate ? 1 : 0;
  }
  EXPECT_FALSE(metrics.empty());
  for (const auto& [pattern, seen] : metrics) {
    EXPECT_EQ(seen, std::set<std::string>({"planted_loss", "repeated_loss"})) << pattern;
  }
  for (const auto& [pattern, count] : gates) EXPECT_EQ(count, 1) << pattern;
}

// Zeroing heads through the tap is what the report says it is: compare with zeroing them by hand.
TEST(Verification, ALayerWithoutHeadsEqualsAModelWithoutThatLayer) {
  Forming forming;
  const auto& monitor = forming.attached.monitor;
  tiny_training(forming.model, monitor.get(), 0, 10);
  AblationRequest request;
  const int64_t layer = monitor->report().last_probe->heads.back().id.layer;
  for (const HeadReading& head : monitor->report().last_probe->heads)
    if (head.id.layer == layer) request.heads.push_back(head.id);
  const AblationReport report = monitor->ablate(request).report;

  TinyModel& model = forming.model;
  model.monitor = nullptr;
  const at::NoGradGuard no_grad;
  for (auto& named : model.named_parameters())
    if (named.key() == "output" + std::to_string(layer)) named.value().zero_();
  const ProbeOptions probe = resolved(testing::tiny_probe());
  const InductionBatch batch = induction_batch({.examples = probe.examples,
                                                .context = probe.context,
                                                .token_low = probe.token_low,
                                                .token_high = probe.token_high,
                                                .seed = probe.seed + 1});
  const at::Tensor loss =
      at::cross_entropy_loss(model.forward(batch.tokens).select(1, probe.context - 1),
                             at::tensor(batch.target_token, at::kLong));
  EXPECT_NEAR(report.ablated_loss, loss.item<double>(), 1e-5);
}

TEST(Verification, WithoutLogitsACircuitStaysFormed) {
  TinyModel model(2);
  Attached attached(model, Forming::rules(), false);
  ProbeOptions probe = testing::tiny_probe();
  for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = 18;
  attached.monitor->set_probe(
      model,
      [&model](const at::Tensor& tokens) {
        model.forward(tokens);
        return at::Tensor();
      },
      probe);
  tiny_training(model, attached.monitor.get(), 0, 30);
  const RunReport report = attached.monitor->report();
  EXPECT_GT(report.health.errors.at("ablation"), 0u);
  EXPECT_TRUE(report.ablations.empty());
  for (const CircuitReading& circuit : report.circuits)
    EXPECT_NE(circuit.state, CircuitState::kVerified);
}

}  // namespace
}  // namespace headscope
