#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <tuple>

#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::tiny_training;
using testing::TinyModel;

/// The same run without a monitor: training must not notice any fault.
std::vector<double> untouched(int64_t steps,
                              const std::function<void(TinyModel&)>& configure = {}) {
  TinyModel model(2);
  if (configure) configure(model);
  return tiny_training(model, nullptr, 0, steps);
}

TEST(Faults, AnUntoldScaleIsFoundByTheSelfCheckAndNamed) {
  TinyModel model(2);
  model.scale = 1.5;
  Attached attached(model);
  const auto losses = tiny_training(model, attached.monitor.get(), 0, 12);
  const RunReport report = attached.monitor->report();
  EXPECT_GT(report.health.errors.at("self_check"), 0u);
  EXPECT_EQ(attached.log->size(), 1u);
  EXPECT_THAT(attached.log->at(0), HasSubstr("differs from softmax"));
  // The spectrum needs no mask or scale; what the wrong scale touches is withheld.
  EXPECT_TRUE(report.last_probe->heads.at(0).participation_ratio >= 1);
  EXPECT_TRUE(std::isnan(report.last_probe->heads.at(0).patterns.at(0).selectivity));
  EXPECT_EQ(losses, untouched(12, [](TinyModel& m) { m.scale = 1.5; }));
}

TEST(Faults, ATellingTapPassesTheSelfCheck) {
  TinyModel model(2);
  model.scale = model.told_scale = 1.5;
  Attached attached(model);
  tiny_training(model, attached.monitor.get(), 0, 12);
  EXPECT_EQ(attached.monitor->report().health.errors.at("self_check"), 0u);
  EXPECT_TRUE(attached.log->empty());
}

TEST(Faults, DropoutInTrainingIsNoFalseAlarm) {
  TinyModel model(1);
  model.dropout = 0.3;
  Attached attached(model);
  tiny_training(model, attached.monitor.get(), 0, 12);
  EXPECT_EQ(attached.monitor->report().health.errors.at("self_check"), 0u);
}

TEST(Faults, AThrowingProbeIsCountedAndComesBack) {
  TinyModel model(2);
  bool failing = true;
  Attached attached(model);
  model.on_forward = [&] {
    if (failing && !at::GradMode::is_enabled()) throw std::runtime_error("out of memory");
  };
  auto losses = tiny_training(model, attached.monitor.get(), 0, 10);
  EXPECT_GT(attached.monitor->health().errors.at("probe"), 0u);
  EXPECT_EQ(attached.monitor->report().health.probes, 0u);
  EXPECT_TRUE(model.is_training());
  failing = false;
  for (const double loss : tiny_training(model, attached.monitor.get(), 10, 60))
    losses.push_back(loss);
  EXPECT_GT(attached.monitor->report().health.probes, 0u);
  EXPECT_EQ(losses, untouched(60));
}

TEST(Faults, NanWeightsAreCountedAndSaidOnce) {
  TinyModel model(2);
  Attached attached(model);
  tiny_training(model, attached.monitor.get(), 0, 20);
  const uint64_t before = attached.monitor->report().health.nonfinite_readings;
  EXPECT_EQ(before, 0u);
  const double integral = attached.monitor->report().last_probe->heads.at(0).pr_integral;
  {
    const at::NoGradGuard no_grad;
    model.parameters().front().fill_(kNaN);
  }
  tiny_training(model, attached.monitor.get(), 20, 40);
  const RunReport report = attached.monitor->report();
  EXPECT_GT(report.health.nonfinite_readings, 0u);
  EXPECT_FALSE(report.last_probe->heads.at(0).finite);
  EXPECT_EQ(report.last_probe->heads.at(0).pr_integral, integral);
  EXPECT_THAT(*attached.log, ElementsAre(HasSubstr("NaN or Inf")));
}

TEST(Faults, MisshapenTapsAreRefusedByNameNotThrown) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  const at::Tensor q = at::randn({2, 4, 8, 4});
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    const at::Tensor merged = at::randn({2, 8, 16});
    EXPECT_TRUE(attached.monitor->observe(0, q, q, q, merged).is_same(merged));
  }
  EXPECT_EQ(attached.monitor->health().errors.at("tap"), 1u);
  EXPECT_THAT(attached.log->at(0), HasSubstr("must be [B, H, T, D]"));
}

TEST(Faults, UndefinedIntegerAndEmptyTensorsNeverThrow) {
  TinyModel model(1);
  Options options;
  options.schedule.train_every = 1;
  Attached attached(model, options, /*with_probe=*/false);
  const auto observe = [&](int64_t step, const at::Tensor& q, const at::Tensor& z) {
    auto scope = attached.monitor->begin_step({.step = step});
    static_cast<void>(attached.monitor->observe(0, q, q, q, z));
  };
  observe(0, {}, {});
  observe(1, at::zeros({1, 1, 4, 4}, at::kInt), at::zeros({1, 1, 4, 4}, at::kInt));
  for (const auto& sizes :
       std::vector<std::vector<int64_t>>{{0, 4, 8, 4}, {2, 0, 8, 4}, {2, 4, 1, 4}, {2, 4, 8, 1}}) {
    observe(20, at::randn(sizes), at::randn(sizes));
  }
  EXPECT_GT(attached.monitor->health().errors.at("tap"), 0u);
  attached.monitor->close();
}

TEST(Faults, ExtremeValuesGiveFiguresOrAreMarked) {
  for (const double value : {1e-310, 1e-30, 1e30, 1e300}) {
    TinyModel model(1);
    Attached attached(model, {}, /*with_probe=*/false);
    const at::Tensor q = at::full({2, 4, 8, 4}, value, at::kDouble),
                     v = at::randn({2, 4, 8, 4}, at::kDouble) * value;
    {
      auto scope = attached.monitor->begin_step({.step = 0});
      static_cast<void>(attached.monitor->observe(
          0, q, q, v, at::scaled_dot_product_attention(q, q, v, {}, 0.0, true)));
    }
    const auto snapshot = attached.monitor->report().last_train;
    ASSERT_NE(snapshot, nullptr);
    for (const HeadReading& head : snapshot->heads) {
      EXPECT_TRUE(!head.finite || head.participation_ratio >= 1 - 1e-9) << value;
    }
  }
}

TEST(Faults, ALayerThatStopsReportingIsCounted) {
  TinyModel model(2);
  Attached attached(model, {}, /*with_probe=*/false);
  const at::Tensor q = at::randn({2, 4, 8, 4});
  const at::Tensor z = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
  for (int64_t step = 0; step < 20; ++step) {
    auto scope = attached.monitor->begin_step({.step = step});
    static_cast<void>(attached.monitor->observe(0, q, q, q, z));
    if (step < 10) static_cast<void>(attached.monitor->observe(1, q, q, q, z));
  }
  EXPECT_EQ(attached.monitor->health().taps_missing, 1u);
  EXPECT_THAT(attached.log->at(0), HasSubstr("layers 1 did not report"));
}

TEST(Faults, ALayerMissingFromSomeProbesCostsNoOther) {
  TinyModel model(2);
  Attached attached(model);
  for (const auto& [first, last, silent] : std::vector<std::tuple<int64_t, int64_t, int64_t>>{
           {0, 8, 1}, {8, 16, -1}, {16, 24, 0}, {24, 32, -1}}) {
    model.silent_layer = silent;
    tiny_training(model, attached.monitor.get(), first, last);
    const RunReport report = attached.monitor->report();
    EXPECT_EQ(report.last_probe->heads.size(), silent < 0 ? 8u : 4u);
    EXPECT_EQ(report.health.errors.at("analysis"), 0u) << "after step " << last;
    EXPECT_GT(report.last_probe->heads.at(0).pr_integral, 0);
  }
}

TEST(Faults, PaddingIsLeftOutOfEveryFigure) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  at::Tensor q = at::randn({2, 4, 16, 4}), k = at::randn({2, 4, 16, 4}),
             v = at::randn({2, 4, 16, 4});
  at::Tensor keep = at::ones({2, 16}, at::kBool);
  keep.narrow(1, 0, 5).fill_(false);  // left padding
  const at::Tensor mask = keep.view({2, 1, 1, 16});
  const at::Tensor causal = at::ones({16, 16}, at::kBool).tril();
  at::Tensor z = at::scaled_dot_product_attention(q, k, v, mask.logical_and(causal));
  z.narrow(2, 0, 5).fill_(kNaN);
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    static_cast<void>(attached.monitor->observe(0, q, k, v, z, {.bias = mask, .keep = keep}));
  }
  const RunReport report = attached.monitor->report();
  ASSERT_NE(report.last_train, nullptr);
  EXPECT_EQ(report.health.nonfinite_readings, 0u);
  EXPECT_EQ(report.health.errors.at("self_check"), 0u);
  EXPECT_EQ(report.last_train->heads.at(0).samples, 2 * 11);
  EXPECT_TRUE(report.last_train->heads.at(0).patterns.at(1).selectivity > 0);
}

TEST(Faults, AForgottenBiasIsFoundBesideFullyMaskedRows) {
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  const at::Tensor q = at::randn({2, 4, 16, 4}), k = at::randn({2, 4, 16, 4}),
                   v = at::randn({2, 4, 16, 4});
  at::Tensor mask = at::ones({16, 16}, at::kBool).tril();
  mask.narrow(0, 0, 5).fill_(false);
  const at::Tensor bias = at::randn({4, 16, 16}) * 3;
  const at::Tensor used =
      bias.masked_fill(mask.logical_not(), -std::numeric_limits<float>::infinity());
  const at::Tensor z = at::scaled_dot_product_attention(q, k, v, used);
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    static_cast<void>(attached.monitor->observe(0, q, k, v, z, {.bias = mask}));
  }
  EXPECT_EQ(attached.monitor->report().health.errors.at("self_check"), 1u);
}

TEST(Faults, AProbeWithoutTapsIsSaid) {
  TinyModel model(1);
  Attached attached(model);
  model.monitor = nullptr;
  { auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0}); }
  EXPECT_THAT(attached.log->at(0), HasSubstr("no attention reported during the probe"));
}

TEST(Faults, WrongConfigurationFailsAtAttachWithTheValue) {
  const auto message = [](Options options) -> std::string {
    try {
      Monitor monitor(std::move(options), {});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message({.sampled_rows = 17}), HasSubstr("sampled_rows must lie in 1..16, got 17"));
  EXPECT_THAT(message({.port = 70000}), HasSubstr("70000"));
  EXPECT_THAT(message({.schedule = {.train_every = -1}}), HasSubstr("-1"));
  EXPECT_THAT(message({.integral = {.floor_tokens = 0}}), HasSubstr("integral.floor_tokens"));
  EXPECT_THAT(message({.controls = {.wanted = 0}}), HasSubstr("controls.wanted"));
  EXPECT_THAT(message({.verdict = {.confidence = 2}}), HasSubstr("verdict.confidence"));
  EXPECT_THAT(message({.verdict = {.level = 1}}), HasSubstr("verdict.level"));
  EXPECT_THAT(message({.verdict = {.most_label_sets = 0}}), HasSubstr("verdict.most_label_sets"));
  EXPECT_THAT(message({.verdict = {.labelled_examples = 0}}), HasSubstr("labelled_examples"));
  TinyModel model(1);
  Attached attached(model, {}, /*with_probe=*/false);
  EXPECT_THROW(attached.monitor->set_probe(model, {}, testing::tiny_probe()),
               std::invalid_argument);
  ProbeOptions probe = testing::tiny_probe();
  probe.token_high = 33;
  EXPECT_THROW(attached.monitor->set_probe(
                   model, [](const at::Tensor& t) { return t; }, probe),
               std::invalid_argument);
}

TEST(Faults, ATakenPortAndAnUnwritableRunDirectoryLeaveTheRunAlone) {
  TinyModel model(1);
  std::vector<std::string> log;
  Options options;
  options.run_dir = "/proc/no/such/place";
  options.port = 0;
  options.log = [&](LogLevel, const std::string& line) { log.push_back(line); };
  const auto first = Monitor::attach(options);
  EXPECT_EQ(first->health().errors.at("history"), 1u);
  EXPECT_THAT(log, ::testing::Contains(HasSubstr("/proc/no/such/place")));
  options.run_dir.clear();
  options.port = std::stoi(first->url().substr(first->url().rfind(':') + 1));
  const auto second = Monitor::attach(options);
  EXPECT_NE(second->url(), "");
  EXPECT_NE(second->url(), first->url());
  model.monitor = second.get();
  EXPECT_EQ(tiny_training(model, second.get(), 0, 5),
            tiny_training(*std::make_unique<TinyModel>(1), nullptr, 0, 5));
}

}  // namespace
}  // namespace headscope
