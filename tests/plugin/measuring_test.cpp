#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "headscope/trajectory.h"
#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::tiny_batch;
using testing::tiny_step;
using testing::tiny_training;
using testing::TinyModel;

TEST(Measuring, PublishesTrainAndProbeSnapshotsOfEveryHead) {
  TinyModel model(2);
  Options options;
  options.schedule.train_every = 4;
  Attached attached(model, options);
  tiny_training(model, attached.monitor.get(), 0, 20);
  attached.monitor->close();
  std::vector<int64_t> train, probe;
  for (const auto& snapshot : attached.sink->snapshots) {
    (snapshot->source == Source::kTrain ? train : probe).push_back(snapshot->step);
    ASSERT_EQ(snapshot->heads.size(), 8u);
    EXPECT_EQ(snapshot->dtype, "Float");
    EXPECT_EQ(snapshot->context, 16);
    for (const HeadReading& head : snapshot->heads) {
      EXPECT_TRUE(head.finite);
      if (std::isnan(head.participation_ratio)) {
        EXPECT_EQ(snapshot->source, Source::kProbe) << "a probe that ended early reads none";
        continue;
      }
      EXPECT_TRUE(head.participation_ratio >= 1 - 1e-9 && head.participation_ratio <= 4 + 1e-9);
      EXPECT_EQ(head.samples, snapshot->source == Source::kTrain ? 4 * 16 : 16);
      EXPECT_TRUE(head.patterns[1].selectivity > 0);
      EXPECT_TRUE(head.entropy > 0);
      const bool whole = snapshot->source == Source::kProbe && (probe.size() - 1) % 4 == 0;
      EXPECT_EQ(head.prefix_matching >= 0, whole) << "every fourth probe runs the repeated block";
      EXPECT_FALSE(whole && std::isnan(head.null_participation_ratio));
    }
  }
  EXPECT_EQ(train, std::vector<int64_t>({0, 4, 8, 12, 16}));
  EXPECT_EQ(probe.front(), 0);
  EXPECT_GE(probe.size(), 6u);
}

TEST(Measuring, TheIntegralIsThatOfThePublishedReadings) {
  TinyModel model(1);
  Attached attached(model);
  tiny_training(model, attached.monitor.get(), 0, 30);
  attached.monitor->close();
  std::map<HeadId, Trajectory> again;
  int64_t checked = 0;
  for (const auto& snapshot : attached.sink->snapshots) {
    if (snapshot->source != Source::kProbe) continue;
    for (const HeadReading& head : snapshot->heads) {
      Trajectory& trajectory = again.try_emplace(head.id).first->second;
      trajectory.add({snapshot->step, snapshot->tokens, head.participation_ratio});
      EXPECT_EQ(trajectory.integral(), head.pr_integral);
      ++checked;
    }
  }
  EXPECT_GT(checked, 20);
}

TEST(Measuring, MicroBatchesAddUpToTheStep) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    for (int64_t micro = 0; micro < 3; ++micro) {
      const at::Tensor tokens = tiny_batch(micro);
      scope.micro_batch(tokens);
      tiny_step(model, tokens, 0.0);
    }
  }
  const auto snapshot = attached.monitor->report().last_train;
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(snapshot->heads.at(0).samples, 3 * 4 * 16);
  EXPECT_TRUE(
      std::isfinite(snapshot->heads.at(0).patterns.at(0).selectivity));  // induction: ids were told
}

TEST(Measuring, WithoutIdsPositionPatternsAreStillMeasured) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    tiny_step(model, tiny_batch(0));
  }
  const auto snapshot = attached.monitor->report().last_train;
  ASSERT_NE(snapshot, nullptr);
  EXPECT_TRUE(std::isnan(snapshot->heads.at(0).patterns.at(0).selectivity));
  EXPECT_TRUE(std::isfinite(snapshot->heads.at(0).patterns.at(1).selectivity));
}

TEST(Measuring, ARecomputeInBackwardIsNotASecondForward) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    const at::Tensor tokens = tiny_batch(0);
    const at::Tensor logits = model.forward(tokens);
    // As a checkpoint does: the forward runs again while backward is on its way.
    logits.register_hook([&](const at::Tensor&) { model.forward(tokens); });
    logits.sum().backward();
  }
  const RunReport report = attached.monitor->report();
  EXPECT_EQ(report.last_train->heads.at(0).samples, 4 * 16);
  EXPECT_EQ(report.health.taps, 1u);
  EXPECT_EQ(report.health.taps_skipped, 1u);
}

TEST(Measuring, ReadsBeforeTheHostWritesOver) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  const at::Tensor q = at::randn({2, 4, 16, 4}), k = at::randn({2, 4, 16, 4}),
                   v = at::randn({2, 4, 16, 4});
  at::Tensor z = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
  const double norm = std::sqrt(z.select(1, 2).square().sum(-1).mean().item<double>());
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    static_cast<void>(attached.monitor->observe(0, q, k, v, z));
    z.zero_();
    q.zero_();
  }
  EXPECT_NEAR(attached.monitor->report().last_train->heads.at(2).output_norm, norm, 1e-5);
}

// `scope.emplace(monitor->begin_step(..))` begins a step before the one before has ended.
TEST(Measuring, AScopeThatTheNextOneReplacesEndsNothing) {
  TinyModel model(2);
  Options options;
  options.schedule.train_every = 1;
  Attached attached(model, options, /*with_probe=*/false);
  std::optional<StepScope> scope;
  for (int64_t step = 0; step < 12; ++step) {
    scope.emplace(attached.monitor->begin_step({.step = step}));
    testing::tiny_step(model, testing::tiny_batch(step));
  }
  scope.reset();
  const RunReport report = attached.monitor->report();
  EXPECT_EQ(report.health.measured_steps, 12u);
  EXPECT_EQ(report.last_train->step, 11);
  EXPECT_TRUE(attached.log->empty());
}

TEST(Measuring, AProbeThatIsSetWithinAStepGivesTheStepUp) {
  TinyModel model(2);
  Options options;
  options.schedule.train_every = 1;
  Attached attached(model, options);
  {
    auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0});
    model.forward(testing::tiny_batch(0));
    ProbeOptions probe = testing::tiny_probe();
    Pattern own = probe.patterns.back();
    own.name = "mine";
    probe.patterns.push_back(own);
    attached.monitor->set_probe(
        model, [&](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  }
  tiny_training(model, attached.monitor.get(), 1, 12);
  const RunReport report = attached.monitor->report();
  EXPECT_EQ(report.last_train->patterns.size(), 7u);
  for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
}

TEST(Measuring, EventsReachTheCallback) {
  TinyModel model(1);
  Options options;
  options.rules.mass_floor = 0;
  std::atomic<int> events{0};
  options.on_event = [&](const Event&) { ++events; };
  Attached attached(model, options, /*with_probe=*/false);
  ProbeOptions probe = testing::tiny_probe();
  for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = 0.01;  // everything forms at once
  probe.verify = false;
  attached.monitor->set_probe(
      model, [&](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  tiny_training(model, attached.monitor.get(), 0, 8);
  attached.monitor->close();
  EXPECT_GT(events.load(), 0);
  EXPECT_EQ(static_cast<size_t>(events.load()), attached.monitor->report().events.size());
}

TEST(Measuring, TheUsersOwnPatternIsMeasuredBesideTheOthers) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  ProbeOptions probe = testing::tiny_probe();
  const size_t middle = probe.patterns.size();
  probe.patterns.push_back(
      {.name = "middle",
       .targets = [](auto, int64_t query) { return std::vector<int64_t>{query / 2}; },
       .null = NullKind::kEffectBound});
  attached.monitor->set_probe(
      model, [&](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  tiny_training(model, attached.monitor.get(), 0, 2);
  const RunReport report = attached.monitor->report();
  ASSERT_EQ(report.last_probe->patterns.back(), "middle");
  EXPECT_TRUE(report.last_probe->heads.at(0).patterns.at(middle).selectivity > 0);
  EXPECT_EQ(report.circuits.size(), middle + 1);
}

TEST(Measuring, SaysOnceWhatRowsTheTestLeavesOut) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  ProbeOptions probe = testing::tiny_probe();
  probe.context = 64;  // never run
  probe.examples = 1500;
  probe.patterns = {{.name = "pairs", .targets = [](std::span<const int64_t> tokens, int64_t) {
                       return std::vector<int64_t>{1 + tokens[0] % 30, 31 + tokens[1] % 30};
                     }}};
  for (int i = 0; i < 2; ++i)
    attached.monitor->set_probe(
        model, [&](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  const auto is_told = [](const std::string& line) {
    return line.find("probe rows do not enter the test of pairs") != std::string::npos;
  };
  EXPECT_EQ(std::count_if(attached.log->begin(), attached.log->end(), is_told), 1);
}

}  // namespace
}  // namespace headscope
