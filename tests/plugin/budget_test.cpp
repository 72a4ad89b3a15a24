#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::tiny_training;
using testing::TinyModel;

constexpr double kStepSeconds = 2, kPassSeconds = 0.1;

/// A run on an injected clock: a step takes two seconds, a pass of the monitor's a tenth.
struct Simulated {
  double time = 0;
  std::vector<double> pass_ends;
  TinyModel model{2};
  std::optional<Attached> attached;

  explicit Simulated(double budget, double resolved_clock = 0) : time(resolved_clock) {
    Options options;
    options.schedule.budget = budget;
    options.schedule.longest_probe_gap = 4;
    options.rules.mass_floor = 0.05;
    options.rules.emerging_selectivity = 1.05;
    options.clock = [this] { return time; };
    model.on_forward = [this] {
      if (at::GradMode::is_enabled()) {
        time += kStepSeconds;
      } else {
        time += kPassSeconds;
        pass_ends.push_back(time);
      }
    };
    // Whatever heads there are form, and their effect counts: verifications have passes to spread.
    options.rules.precursor = Precursor::kSelectivity;
    options.rules.emerging_selectivity = 0.1;
    options.verdict.smallest_effect = 0;
    options.verdict.confidence = 0.2;
    attached.emplace(model, options, /*with_probe=*/false);
    ProbeOptions probe = testing::tiny_probe();
    for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = 20;
    monitor().set_probe(
        model, [this](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  }
  Monitor& monitor() { return *attached->monitor; }
  std::vector<double> train(int64_t first, int64_t last) {
    std::vector<double> losses;
    for (int64_t step = first; step < last; ++step) {
      losses.push_back(tiny_training(model, &monitor(), step, step + 1).front());
      monitor().report();  // the analysis keeps up: what is put off is the budget's doing alone
    }
    return losses;
  }
  double worst_window() const {
    size_t most = 0, first = 0;
    for (size_t i = 0; i < pass_ends.size(); ++i) {
      while (pass_ends[first] <= pass_ends[i] - 600) ++first;
      most = std::max(most, i - first + 1);
    }
    return static_cast<double>(most) * kPassSeconds;
  }
};

TEST(BudgetedRun, AnyTenMinutesStayWithinIt) {
  Simulated run(0.01);
  run.train(0, 1500);
  const RunReport report = run.monitor().report();
  EXPECT_LE(run.worst_window(), 1.2 * 0.01 * 600);
  EXPECT_GE(report.health.probes, 10u);
  EXPECT_GT(report.health.deferred, 0u);
  EXPECT_EQ(report.health.budget_ratio, 0.01);
  EXPECT_GT(report.health.budget_used_ratio, 0);
  const auto is_deferral = [](const Event& event) { return event.kind == "deferred"; };
  const auto deferral = std::find_if(report.events.begin(), report.events.end(), is_deferral);
  ASSERT_NE(deferral, report.events.end());
  EXPECT_LT(deferral->figures.at("due_step"), static_cast<double>(deferral->step));
  EXPECT_THAT(*run.attached->log,
              ::testing::Contains(::testing::HasSubstr("Schedule::budget is 0.01")));
}

TEST(BudgetedRun, VerificationIsSpreadOverStepsAndEndsInAVerdict) {
  Simulated run(0.05);
  run.train(0, 800);
  const RunReport report = run.monitor().report();
  ASSERT_FALSE(report.ablations.empty());
  for (const AblationReport& ablation : report.ablations) {
    // Without an effect (here: above 0) it ends before the controls.
    EXPECT_EQ(ablation.verdict == CircuitState::kNotCausal, ablation.effect_high < 0);
    EXPECT_EQ(ablation.effect_low > 0, !ablation.control_effects.empty());
    EXPECT_TRUE(std::isfinite(ablation.effect));
  }
  EXPECT_LE(run.worst_window(), 1.2 * 0.05 * 600);
}

// Killed between two sittings of a verification, it goes on where it was.
TEST(BudgetedRun, AHalfDoneVerificationIsPartOfTheState) {
  Simulated first(0.02);
  StateDict state;
  int64_t step = 0;
  for (; step < 4000; ++step) {
    first.train(step, step + 1);
    state = first.monitor().state_dict();
    if (state.at("verification").numel() > 0) break;
  }
  ASSERT_GT(state.at("verification").numel(), 0) << "no verification was spread";
  const size_t before = first.monitor().report().ablations.size();

  Simulated second(0.02, first.time);
  {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < first.model.parameters().size(); ++i)
      second.model.parameters()[i].copy_(first.model.parameters()[i]);
  }
  second.monitor().load_state_dict(state);
  EXPECT_TRUE(second.monitor().state_dict().at("verification").equal(state.at("verification")));
  for (int64_t i = step + 1; i < step + 3000; ++i) {
    const double loss = first.train(i, i + 1).front();
    EXPECT_EQ(second.train(i, i + 1).front(), loss);
    if (first.monitor().report().ablations.size() > before) break;
  }
  const auto a = first.monitor().report().ablations, b = second.monitor().report().ablations;
  ASSERT_GT(a.size(), before);
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(a.back().step, b.back().step);
  EXPECT_EQ(a.back().effect, b.back().effect);
  EXPECT_EQ(a.back().control_effects, b.back().control_effects);
}

TEST(BudgetedRun, TrainingIsTheSameBitsWhateverTheBudget) {
  Simulated none(0), some(0.01), all(1);
  const auto losses = none.train(0, 60);
  EXPECT_EQ(some.train(0, 60), losses);
  EXPECT_EQ(all.train(0, 60), losses);
  EXPECT_GT(none.monitor().report().health.probes, some.monitor().report().health.probes);
}

TEST(BudgetedRun, WhatCannotBeAShareIsRefused) {
  for (const double budget : {-0.1, 1.5, kNaN}) {
    Options options;
    options.schedule.budget = budget;
    EXPECT_THROW(Monitor(options, {}), std::invalid_argument) << budget;
  }
}

}  // namespace
}  // namespace headscope
