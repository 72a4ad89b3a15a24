// What attaching costs a training run: rows 10 to 13 of the goals.

#include <ATen/ATen.h>

#include <algorithm>
#include <deque>

#include "headscope/monitor.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/runner.h"
#include "tests/support/models/torch_memory.h"

namespace headscope::bench {
namespace {

Options quiet_options() {
  Options options;
  options.schedule.budget = 0;
  options.log = [](LogLevel, const std::string&) {};
  return options;
}

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

Row memory_row() {
  const int64_t batch = 4, heads = 12, tokens = 1024, width = 64;
  const at::Tensor q = at::randn({batch, heads, tokens, width});
  const at::Tensor z = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
  Options options = quiet_options();
  options.schedule.train_every = 1;
  Monitor monitor(options, {});
  testing::TorchMemory memory;
  {
    auto scope = monitor.begin_step({.step = 0});
    scope.micro_batch(at::randint(500, {batch, tokens}, at::kLong));
    memory.count([&] { static_cast<void>(monitor.observe(0, q, q, q, z)); });
  }
  monitor.report();
  const double gram = static_cast<double>(heads * width * width) * sizeof(float);
  Row row{"13", "extra memory of a measured layer, less 64 KB, in G buffers"};
  row.must = 2;
  row.aim = 1;
  row.smaller_is_better = true;
  row.unit = "x";
  row.measured = (static_cast<double>(memory.peak()) - 65536) / gram;
  row.spread = 0;
  row.roof = "peak " + std::to_string(memory.peak() / 1024) +
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
