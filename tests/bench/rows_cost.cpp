// What attaching costs a training run: rows 10 to 13 of the goals.

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

#include "headscope/monitor.h"
#include "tests/bench/runner.h"

namespace headscope::bench {
namespace {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Options quiet_options() {
  Options options;
  options.schedule.budget = 0;
  options.log = [](LogLevel, const std::string&) {};
  return options;
}

/// A GPT-like model of 6 layers, 8 heads of 64, T = 128, batch 2.
class BenchModel {
 public:
  static constexpr int64_t kLayers = 6, kHeads = 8, kWidth = 512, kContext = 128, kBatch = 2,
                           kVocab = 512;
  BenchModel() {
    const auto weight = [&](at::IntArrayRef sizes) {
      at::Tensor w = at::randn(sizes).mul_(0.02).requires_grad_(true);
      parameters_.push_back(w);
      return w;
    };
    embedding_ = weight({kVocab, kWidth});
    for (int64_t l = 0; l < kLayers; ++l) {
      layers_.push_back({weight({3 * kWidth, kWidth}), weight({kWidth, kWidth}),
                         weight({4 * kWidth, kWidth}), weight({kWidth, 4 * kWidth})});
    }
  }

  /// One SGD step; returns the thread-CPU seconds that the monitor took in it.
  double step(int64_t index, Monitor* monitor) {
    double ours = 0;
    const auto timed = [&](auto&& work) {
      const double start = thread_cpu_seconds();
      work();
      ours += thread_cpu_seconds() - start;
    };
    const at::Tensor tokens = at::randint(kVocab, {kBatch, kContext}, at::kLong);
    std::optional<StepScope> scope;
    if (monitor != nullptr)
      timed([&] {
        scope.emplace(monitor->begin_step({.step = index}));
        scope->micro_batch(tokens);
      });
    at::Tensor x = at::embedding(embedding_, tokens);
    for (int64_t l = 0; l < kLayers; ++l) {
      const Layer& layer = layers_[static_cast<size_t>(l)];
      const at::Tensor qkv = at::linear(at::layer_norm(x, {kWidth}), layer.qkv);
      const auto part = [&](int64_t i) {
        return qkv.narrow(2, i * kWidth, kWidth)
            .view({kBatch, kContext, kHeads, kWidth / kHeads})
            .transpose(1, 2);
      };
      at::Tensor z = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0.0, true);
      if (monitor != nullptr) timed([&] { z = monitor->observe(l, part(0), part(1), part(2), z); });
      x = x + at::linear(z.transpose(1, 2).reshape(x.sizes()), layer.out);
      x = x + at::linear(at::gelu(at::linear(at::layer_norm(x, {kWidth}), layer.up)), layer.down);
    }
    const at::Tensor loss = at::cross_entropy_loss(at::linear(x, embedding_).reshape({-1, kVocab}),
                                                   tokens.reshape({-1}));
    loss.backward();
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : parameters_) {
        parameter.sub_(parameter.grad(), 1e-3);
        parameter.mutable_grad().reset();
      }
    }
    timed([&] { scope.reset(); });
    return ours;
  }

 private:
  struct Layer {
    at::Tensor qkv, out, up, down;
  };
  at::Tensor embedding_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> parameters_;
};

Row step_row(int64_t every, double must, double aim) {
  const int64_t steps = every == 1 ? 12 : 2 * every;
  BenchModel model;
  Options options = quiet_options();
  options.schedule.train_every = every;
  Monitor monitor(options, {});
  int64_t next = 0;
  for (int64_t i = 0; i < 3; ++i) model.step(next++, nullptr);
  // Off, on, off again: the two runs without a monitor say what a wall ratio is worth.
  const auto wall_of = [&](Monitor* watched, double& cpu, double& ours) {
    const double wall = wall_seconds(), thread = thread_cpu_seconds(),
                 process = process_cpu_seconds();
    for (int64_t i = 0; i < steps; ++i) ours += model.step(next++, watched);
    const double seconds =
        wall_seconds() - wall;  // the analysis of the last step is charged, not waited for
    if (watched != nullptr) watched->report();
    cpu = thread_cpu_seconds() - thread;
    if (watched != nullptr) ours += process_cpu_seconds() - process - cpu;
    return seconds;
  };
  double cpu_before = 0, cpu_on = 0, cpu_after = 0, none = 0, ours = 0;
  next = every;  // measured steps are the same share of both lengths
  const double before = wall_of(nullptr, cpu_before, none);
  next = every;
  const double on = wall_of(&monitor, cpu_on, ours);
  next = every;
  const double after = wall_of(nullptr, cpu_after, none);
  Row row{"10", "monitor's CPU over the step's, 6 layers, k = " + std::to_string(every)};
  row.must = must;
  row.aim = aim;
  row.smaller_is_better = true;
  row.unit = "%";
  row.measured = 100 * ours / std::min(cpu_before, cpu_after);
  row.spread = std::max(before, after) / std::min(before, after) - 1;
  row.roof = "wall ratio " + std::to_string(on / std::min(before, after)) +
             " (spread is that of two runs without)";
  return row;
}

Row zero_edit_idle_row() {
  const at::Tensor q = at::randn({1, 2, 8, 4});
  constexpr int kCalls = 20000;
  const auto cost = [&] {
    const double start = thread_cpu_seconds();
    for (int i = 0; i < kCalls; ++i) at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
    return thread_cpu_seconds() - start;
  };
  Monitor monitor(quiet_options(), {});
  ProbeOptions probe;
  probe.vocab_size = 32;
  probe.context = 16;
  probe.examples = 8;
  monitor.set_probe(
      ProbeHost{[](const at::Tensor& tokens) {
                  const at::Tensor x = at::randn({tokens.size(0), 2, tokens.size(1), 4});
                  return at::scaled_dot_product_attention(x, x, x, {}, 0.0, true);
                },
                {}},
      probe);
  double absent = std::numeric_limits<double>::infinity(), idle = absent, worst = 0;
  for (int repetition = 0; repetition < 9; ++repetition) {
    absent = std::min(absent, cost());
    monitor.attach_zero_edit();
    const double own = cost();
    idle = std::min(idle, own);
    worst = std::max(worst, own);
    monitor.detach_zero_edit();
  }
  Row row{"11", "zero-edit attached, idle, thread-CPU a call"};
  row.must = 1;
  row.aim = 0.2;
  row.smaller_is_better = true;
  row.unit = "us";
  row.measured = 1e6 * std::max(0.0, idle - absent) / kCalls;
  row.spread = worst / idle - 1;
  row.roof = "a call without: " + std::to_string(1e6 * absent / kCalls) + " us";
  return row;
}

/// Two simulated hours: a step takes 2 s, a pass of the monitor's 0.1 s, budget 1 %.
Row budget_row() {
  constexpr double kStep = 2, kPass = 0.1, kShare = 0.01;
  double time = 0, worst = 0;
  std::deque<double> passes;
  Options options = quiet_options();
  options.schedule.budget = kShare;
  options.schedule.longest_probe_gap = 4;
  options.clock = [&] { return time; };
  Monitor monitor(options, {});
  ProbeOptions probe;
  probe.vocab_size = 32;
  probe.context = 16;
  probe.examples = 16;
  monitor.set_probe(
      ProbeHost{[&](const at::Tensor& tokens) {
                  time += kPass;
                  passes.push_back(time);
                  while (passes.front() <= time - 600) passes.pop_front();
                  worst = std::max(worst, kPass * static_cast<double>(passes.size()));
                  const at::Tensor x = at::randn({tokens.size(0), 2, tokens.size(1), 4});
                  return monitor.observe(0, x, x, x,
                                         at::scaled_dot_product_attention(x, x, x, {}, 0.0, true));
                },
                {}},
      probe);
  for (int64_t step = 0; time < 2 * 3600; ++step) {
    {
      auto scope =
          monitor.begin_step({.step = step, .tokens_seen = 64.0 * static_cast<double>(step)});
    }
    monitor.report();
    time += kStep;
  }
  Row row{"12", "probe passes in the dearest 10 minutes over the budget"};
  row.must = 1.2;
  row.aim = 1.05;
  row.smaller_is_better = true;
  row.unit = "x";
  row.measured = worst / (kShare * 600);
  row.spread = 0;
  row.roof = "injected clock, 2 hours, " + std::to_string(monitor.health().probes) + " probes";
  return row;
}

/// Counts what torch allocates on this thread while it is on.
class CountingAllocator final : public c10::Allocator {
 public:
  explicit CountingAllocator(c10::Allocator* real) : real_(real) {}
  c10::DataPtr allocate(size_t bytes) override {
    if (!counting) return real_->allocate(bytes);
    now += static_cast<int64_t>(bytes);
    peak = std::max(peak, now);
    auto* held = new Held{real_->allocate(bytes), bytes};
    return {held->data.get(), held, &release, held->data.device()};
  }
  void copy_data(void* to, const void* from, size_t count) const override {
    real_->copy_data(to, from, count);
  }
  static inline bool counting = false;
  static inline int64_t now = 0, peak = 0;

 private:
  struct Held {
    c10::DataPtr data;
    size_t bytes;
  };
  static void release(void* context) {
    auto* held = static_cast<Held*>(context);
    now -= static_cast<int64_t>(held->bytes);
    delete held;
  }
  c10::Allocator* real_;
};

Row memory_row() {
  const int64_t batch = 4, heads = 12, tokens = 1024, width = 64;
  const at::Tensor q = at::randn({batch, heads, tokens, width});
  const at::Tensor z = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
  static CountingAllocator allocator(c10::GetCPUAllocator());
  c10::Allocator* const real = c10::GetCPUAllocator();
  Options options = quiet_options();
  options.schedule.train_every = 1;
  Monitor monitor(options, {});
  c10::SetCPUAllocator(&allocator, 200);
  {
    auto scope = monitor.begin_step({.step = 0});
    scope.micro_batch(at::randint(500, {batch, tokens}, at::kLong));
    CountingAllocator::counting = true;
    CountingAllocator::now = CountingAllocator::peak = 0;
    monitor.observe(0, q, q, q, z);
    CountingAllocator::counting = false;
  }
  monitor.report();
  c10::SetCPUAllocator(real, 200);
  const double gram = static_cast<double>(heads * width * width) * sizeof(float);
  Row row{"13", "extra memory of a measured layer, less 64 KB, in G buffers"};
  row.must = 2;
  row.aim = 1;
  row.smaller_is_better = true;
  row.unit = "x";
  row.measured = (static_cast<double>(CountingAllocator::peak) - 65536) / gram;
  row.spread = 0;
  row.roof = "peak " + std::to_string(CountingAllocator::peak / 1024) +
             " KB at B4 H12 T1024 d64; one head's T x T is " +
             std::to_string(tokens * tokens * 4 / 1024) + " KB";
  return row;
}

}  // namespace

void cost_rows(const Emit& emit) {
  emit(step_row(10, 0.3, 0.1));
  emit(step_row(1, 2, 0.8));
  emit(zero_edit_idle_row());
  emit(budget_row());
  emit(memory_row());
}

}  // namespace headscope::bench
