#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::tiny_training;
using testing::TinyModel;

at::Tensor host_generator_state() {
  return at::globalContext().defaultGenerator(at::kCPU).get_state();
}

struct RunBits {
  std::vector<double> losses;
  std::vector<at::Tensor> parameters;
  std::vector<at::Tensor> gradients;
  at::Tensor generator;
};

enum class Use { kAbsent, kIdle, kOn };

/// A run with attention dropout, so that every draw from the host's generator shows in the loss.
RunBits run(Use use) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(5);
  TinyModel model(2);
  model.dropout = 0.2;
  std::optional<Attached> attached;
  if (use != Use::kAbsent) {
    Options options;
    options.measure = use == Use::kOn;
    options.schedule.train_every = 3;
    attached.emplace(model, options);
  }
  RunBits bits;
  bits.losses = tiny_training(model, attached ? attached->monitor.get() : nullptr, 0, 40);
  for (const at::Tensor& parameter : model.parameters()) {
    bits.parameters.push_back(parameter.detach().clone());
    bits.gradients.push_back(parameter.grad().clone());
  }
  bits.generator = host_generator_state();
  if (use == Use::kOn) {
    EXPECT_GT(attached->monitor->health().probes, 0u);
    EXPECT_GT(attached->monitor->health().taps, 20u);
    for (const auto& [kind, count] : attached->monitor->health().errors)
      EXPECT_EQ(count, 0u) << kind;
  }
  return bits;
}

void expect_same_bits(const RunBits& a, const RunBits& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_TRUE(a.generator.equal(b.generator));
  ASSERT_EQ(a.parameters.size(), b.parameters.size());
  for (size_t i = 0; i < a.parameters.size(); ++i) {
    EXPECT_TRUE(a.parameters[i].equal(b.parameters[i])) << i;
    EXPECT_TRUE(a.gradients[i].equal(b.gradients[i])) << i;
  }
}

TEST(Undisturbed, LossGradientsParametersAndGeneratorAreTheSameBits) {
  const RunBits absent = run(Use::kAbsent);
  expect_same_bits(run(Use::kOn), absent);
  expect_same_bits(run(Use::kIdle), absent);
}

TEST(Undisturbed, ObserveReturnsTheVeryTensorItWasGiven) {
  TinyModel model(1);
  Attached attached(model);
  const at::Tensor q = at::randn({2, 4, 8, 4}), z = at::randn({2, 4, 8, 4}).requires_grad_(true);
  const int64_t version = z._version();
  EXPECT_TRUE(attached.monitor->observe(0, q, q, q, z).is_same(z));
  auto scope = attached.monitor->begin_step({.step = 0});
  EXPECT_TRUE(attached.monitor->observe(0, q, q, q, z).is_same(z));
  EXPECT_EQ(z.grad_fn(), nullptr);
  EXPECT_EQ(z._version(), version);
}

TEST(Undisturbed, TheProbePutsModesBuffersGradAndAutocastBack) {
  TinyModel model(2);
  const auto frozen = std::make_shared<TinyModel>(1);
  model.register_module("frozen", frozen);
  frozen->eval();
  Attached attached(model);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto type = at::autocast::get_autocast_dtype(at::kCPU);
  // A forward that draws and leaves autocast and grad mode changed.
  model.on_forward = [] {
    at::rand({3});
    at::autocast::set_autocast_enabled(at::kCPU, false);
    at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
    at::GradMode::set_enabled(true);
  };
  const at::Tensor before = model.calls.clone(), generator = host_generator_state();
  const int64_t version = frozen->calls._version();
  {
    auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0});
    EXPECT_TRUE(model.is_training());
    EXPECT_FALSE(frozen->is_training());
    EXPECT_TRUE(model.calls.equal(before));
    EXPECT_EQ(frozen->calls._version(), version);
    EXPECT_TRUE(at::GradMode::is_enabled());
    EXPECT_TRUE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
    EXPECT_EQ(at::autocast::get_autocast_dtype(at::kCPU), type);
  }
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_TRUE(host_generator_state().equal(generator));
  EXPECT_EQ(attached.monitor->report().health.probes, 1u);
}

TEST(Undisturbed, ABufferThatTheProbeResizesIsPutBack) {
  TinyModel model(1);
  const at::Tensor cache = model.register_buffer("cache", at::arange(6, at::kFloat));
  model.on_forward = [&] {
    if (!at::GradMode::is_enabled()) at::Tensor(cache).resize_({20}).zero_();
  };
  Attached attached(model);
  { auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0}); }
  EXPECT_TRUE(cache.equal(at::arange(6, at::kFloat)));
}

TEST(Undisturbed, TheProbeSeesTheModelInEvaluation) {
  TinyModel model(1);
  bool training = true, grad = true;
  model.on_forward = [&] {
    training = model.is_training();
    grad = at::GradMode::is_enabled();
  };
  Attached attached(model);
  auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0});
  EXPECT_FALSE(training);
  EXPECT_FALSE(grad);
}

TEST(Undisturbed, TwoMonitorsAndTwoModelsKeepApart) {
  TinyModel one(1), two(3);
  Attached first(one), second(two);
  for (int64_t step = 0; step < 12; ++step) {
    tiny_training(one, first.monitor.get(), step, step + 1);
    tiny_training(two, second.monitor.get(), step, step + 1);
  }
  EXPECT_EQ(first.monitor->report().layers, 1);
  EXPECT_EQ(second.monitor->report().layers, 3);
  TinyModel alone(3);
  Attached third(alone);
  tiny_training(alone, third.monitor.get(), 0, 12);
  const auto a = second.monitor->report().last_probe, b = third.monitor->report().last_probe;
  ASSERT_EQ(a->heads.size(), b->heads.size());
  for (size_t i = 0; i < a->heads.size(); ++i) {
    EXPECT_EQ(a->heads[i].participation_ratio, b->heads[i].participation_ratio);
    EXPECT_EQ(a->heads[i].patterns[0].selectivity, b->heads[i].patterns[0].selectivity);
  }
}

}  // namespace
}  // namespace headscope
