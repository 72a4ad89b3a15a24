#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include "headscope/monitor.h"
#include "tests/support/models/pinned_patterns.h"

namespace headscope::testing {

/// A causal attention-only model small enough to run hundreds of steps in a test: embedding, layers
/// of 4 heads of 4, unembedding.
class TinyModel : public torch::nn::Module {
 public:
  static constexpr int64_t kVocab = 32, kHeads = 4, kHeadDim = 4, kWidth = kHeads * kHeadDim,
                           kContext = 16;

  explicit TinyModel(int64_t layers, uint64_t seed = 1) : layers_(layers) {
    at::Generator random = at::detail::createCPUGenerator(seed);
    const auto weight = [&](const std::string& name, at::IntArrayRef sizes, double deviation) {
      return register_parameter(name, at::empty(sizes, at::kFloat).normal_(0, deviation, random));
    };
    embedding_ = weight("embedding", {kVocab, kWidth}, 1.0);
    unembedding_ = weight("unembedding", {kVocab, kWidth}, 0.1);
    for (int64_t l = 0; l < layers; ++l) {
      projections_.push_back(weight("projection" + std::to_string(l), {3 * kWidth, kWidth}, 0.3));
      outputs_.push_back(weight("output" + std::to_string(l), {kWidth, kWidth}, 0.3));
    }
    calls = register_buffer("calls", at::zeros({1}, at::kLong));
  }

  at::Tensor forward(const at::Tensor& tokens) {
    calls.add_(1);  // a buffer that every forward writes
    at::Tensor x = at::embedding(embedding_, tokens);
    for (int64_t l = 0; l < layers_; ++l) x = x + attention(l, x);
    if (on_forward) on_forward();
    return at::linear(x, unembedding_);
  }

  Monitor* monitor = nullptr;
  double scale = 0;                         ///< 0: the default
  double told_scale = 0;                    ///< what the tap is told; 0: nothing
  std::function<void()> on_forward;         ///< a fault to inject
  std::function<void(bool inside)> on_tap;  ///< called before and after each tap
  int64_t silent_layer = -1;                ///< does not call its tap
  at::Tensor calls;

 private:
  at::Tensor attention(int64_t layer, const at::Tensor& x) {
    const int64_t batch = x.size(0), tokens = x.size(1);
    const at::Tensor qkv = at::linear(x, projections_[static_cast<size_t>(layer)]);
    const auto part = [&](int64_t i) {
      return qkv.narrow(2, i * kWidth, kWidth)
          .view({batch, tokens, kHeads, kHeadDim})
          .transpose(1, 2);
    };
    const at::Tensor q = part(0), k = part(1), v = part(2);
    const auto used_scale = scale > 0 ? std::optional<double>(scale) : std::nullopt;
    at::Tensor z = at::scaled_dot_product_attention(q, k, v, {}, is_training() ? dropout : 0.0,
                                                    true, used_scale);
    if (monitor != nullptr && layer != silent_layer) {
      AttentionCall call;
      if (told_scale > 0) call.scale = told_scale;
      call.dropout = is_training() ? dropout : 0.0;
      if (on_tap) on_tap(true);
      z = monitor->observe(layer, q, k, v, z, call);
      if (on_tap) on_tap(false);
    }
    return at::linear(z.transpose(1, 2).reshape(x.sizes()), outputs_[static_cast<size_t>(layer)]);
  }

 public:
  double dropout = 0.0;  ///< of the attention weights while training

 private:
  int64_t layers_;
  at::Tensor embedding_, unembedding_;
  std::vector<at::Tensor> projections_, outputs_;
};

/// Random rows of which the second half repeats the first: something to learn.
inline at::Tensor tiny_batch(int64_t step, int64_t rows = 4) {
  at::Generator random = at::detail::createCPUGenerator(1000 + static_cast<uint64_t>(step));
  const at::Tensor half =
      at::randint(0, TinyModel::kVocab, {rows, TinyModel::kContext / 2}, random, at::kLong);
  return half.repeat({1, 2});
}

/// One plain SGD step; returns the loss.
inline double tiny_step(TinyModel& model, const at::Tensor& tokens, double rate = 0.05) {
  for (at::Tensor& parameter : model.parameters()) parameter.mutable_grad() = at::Tensor();
  const at::Tensor logits = model.forward(tokens);
  const at::Tensor loss = at::cross_entropy_loss(
      logits.narrow(1, 0, tokens.size(1) - 1).reshape({-1, TinyModel::kVocab}),
      tokens.narrow(1, 1, tokens.size(1) - 1).reshape({-1}));
  loss.backward();
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : model.parameters()) parameter.sub_(parameter.grad(), rate);
  return loss.item<double>();
}

/// A probe that fits the tiny model.
inline ProbeOptions tiny_probe() {
  ProbeOptions probe;
  probe.vocab_size = TinyModel::kVocab;
  probe.context = TinyModel::kContext;
  probe.examples = 16;
  probe.micro_batch = 8;
  probe.patterns = pinned_patterns();
  return probe;
}

/// Keeps every snapshot it is given.
class RecordingSink : public Sink {
 public:
  std::string name() const override { return "recording"; }
  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    snapshots.push_back(snapshot);
  }
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
};

/// A monitor with a recording sink, a quiet log, and probes every few steps.
struct Attached {
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::shared_ptr<std::vector<std::string>> log = std::make_shared<std::vector<std::string>>();
  std::unique_ptr<Monitor> monitor;

  explicit Attached(TinyModel& model, Options options = {}, bool with_probe = true) {
    options.log = [lines = log, mutex = std::make_shared<std::mutex>()](LogLevel,
                                                                        const std::string& line) {
      const std::scoped_lock lock(*mutex);
      lines->push_back(line);
    };
    if (options.schedule.longest_probe_gap == Schedule{}.longest_probe_gap)
      options.schedule.longest_probe_gap = 5;
    // Fixed unless a test is about the budget: the same steps are measured whatever the machine
    // does.
    if (!options.clock) options.schedule.budget = 0;
    monitor =
        std::make_unique<Monitor>(std::move(options), std::vector<std::shared_ptr<Sink>>{sink});
    if (with_probe) {
      monitor->set_probe(
          model, [&model](const at::Tensor& tokens) { return model.forward(tokens); },
          tiny_probe());
    }
    model.monitor = monitor.get();
  }
};

/// Trains from `first` to `last` step; returns the losses.
inline std::vector<double> tiny_training(TinyModel& model, Monitor* monitor, int64_t first,
                                         int64_t last) {
  std::vector<double> losses;
  for (int64_t step = first; step < last; ++step) {
    const at::Tensor tokens = tiny_batch(step);
    if (monitor == nullptr) {
      losses.push_back(tiny_step(model, tokens));
      continue;
    }
    auto scope = monitor->begin_step(
        {.step = step, .tokens_seen = static_cast<double>(step * tokens.numel())});
    scope.micro_batch(tokens);
    losses.push_back(tiny_step(model, tokens));
    scope.loss(losses.back());
  }
  return losses;
}

}  // namespace headscope::testing
