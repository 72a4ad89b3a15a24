// Rows 15 to 19 of the goals on one GPU: headscope_gpu_bench [--json FILE].

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>

#include "csrc/measure/cuda/device.h"
#include "headscope/measure.h"
#include "headscope/monitor.h"
#include "tests/bench/bench_model.h"
#include "tests/bench/checked.h"
#include "tests/bench/table.h"

namespace headscope::bench {
namespace {

/// Milliseconds on the stream, best of 15 for every candidate, interleaved after a warm-up.
std::vector<Timing> time_on_device(const std::vector<std::function<void()>>& candidates) {
  std::vector<Timing> timings(candidates.size(), {std::numeric_limits<double>::infinity(), 0});
  std::vector<double> worst(candidates.size(), 0);
  for (const auto& candidate : candidates) candidate();
  for (int repetition = 0; repetition < 15; ++repetition) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
      begin.record();
      candidates[i]();
      end.record();
      end.synchronize();
      const double seconds = 1e-3 * static_cast<double>(begin.elapsed_time(end));
      timings[i].best = std::min(timings[i].best, seconds);
      worst[i] = std::max(worst[i], seconds);
    }
  }
  for (size_t i = 0; i < timings.size(); ++i) timings[i].spread = worst[i] / timings[i].best - 1;
  return timings;
}

at::TensorOptions on_gpu(at::ScalarType type) {
  return at::TensorOptions().dtype(type).device(at::kCUDA);
}

/// Bytes a second of a large device-to-device copy, read and written counted.
double copy_bandwidth() {
  const at::Tensor from = at::empty({int64_t{1} << 30}, on_gpu(at::kByte)),
                   to = at::empty_like(from);
  at::Tensor target = to;
  return 2.0 * static_cast<double>(from.numel()) /
         time_on_device({[&] { target.copy_(from); }})[0].best;
}

std::string gigabytes(double bandwidth) {
  return "copy " + std::to_string(1e-9 * bandwidth) + " GB/s";
}

void gram_row(const Emit& emit, double bandwidth) {
  for (const int64_t width : {64, 128}) {
    const int64_t heads = 2048 / width;
    const at::Tensor z = at::randn({8, 4096, heads, width}, on_gpu(at::kBFloat16)).transpose(1, 2);
    at::Tensor gram = at::zeros({heads, width, width}, on_gpu(at::kFloat)),
               sum = at::zeros({heads, width}, on_gpu(at::kFloat)),
               count = at::zeros({1}, on_gpu(at::kLong));
    const at::Tensor shift = at::zeros_like(sum);
    const auto ours = [&] { accumulate_gram_(gram, sum, count, z, shift); };
    ours();
    const at::Tensor x = z.to(at::kDouble).transpose(0, 1).reshape({heads, -1, width});
    require_close(gram, at::bmm(x.transpose(1, 2), x), 1e-5, "Gram");
    const auto times = time_on_device({ours});
    const double bytes = 2.0 * static_cast<double>(z.numel());
    emit(ratio_row("15", "Gram bf16, view, d = " + std::to_string(width) + ", of copy bandwidth",
                   0.65, 0.85, bytes / bandwidth, times[0], gigabytes(bandwidth)));
  }
}

void attention_row(const Emit& emit, double bandwidth) {
  const int64_t batch = 8, heads = 32, tokens = 4096, width = 128, sampled = 16;
  const at::Tensor q = at::randn({batch, heads, tokens, width}, on_gpu(at::kBFloat16)),
                   k = at::randn({batch, heads, tokens, width}, on_gpu(at::kBFloat16));
  const at::Tensor rows = at::arange(tokens - sampled, tokens, at::kLong)
                              .expand({batch, sampled})
                              .to(at::kCUDA)
                              .contiguous();
  const at::Tensor targets = at::zeros({batch * sampled}, at::kLong).to(at::kCUDA),
                   offsets = at::arange(batch * sampled + 1, at::kLong).to(at::kCUDA);
  const auto ours = [&] { return attention_mass(q, k, rows, targets, offsets, 1); };
  const at::Tensor want = at::softmax(
      at::matmul(q.narrow(2, tokens - 1, 1).to(at::kFloat), k.to(at::kFloat).transpose(2, 3)) /
          std::sqrt(static_cast<double>(width)),
      -1);
  require_close(ours().first_mass.select(2, sampled - 1), want.select(2, 0).select(2, 0), 1e-3,
                "rows");
  const auto times = time_on_device({[&] { ours(); }});
  const double bytes = 2.0 * static_cast<double>(k.numel());
  emit(ratio_row("16", "16 sampled rows, K streamed, of copy bandwidth", 0.65, 0.85,
                 bytes / bandwidth, times[0], gigabytes(bandwidth)));
}

void eigenvalue_rows_on_gpu(const Emit& emit) {
  struct Shape {
    int64_t count, n;
    double must, aim;
  };
  for (const Shape& shape : {Shape{144, 64, 150, 50}, {512, 64, 250, 80}, {1024, 128, 1000, 300}}) {
    const at::Tensor x = at::randn({shape.count, 2 * shape.n, shape.n}, on_gpu(at::kFloat));
    const at::Tensor matrices = at::bmm(x.transpose(1, 2), x);
    const at::Tensor want = at::linalg_eigvalsh(matrices.to(at::kDouble).cpu());
    require_close(symmetric_eigenvalues(matrices).cpu(), want, 3e-6, "eigenvalues");
    const auto cusolver = [&] {
      at::Tensor copy = matrices.to(at::kDouble);
      cuda::solve(copy);
    };
    const auto times = time_on_device({[&] { symmetric_eigenvalues(matrices); }, cusolver});
    const auto torchs = time_interleaved({[&] {
                                           at::linalg_eigvalsh(matrices);
                                           c10::cuda::device_synchronize();
                                         }},
                                         3);
    const std::string name = std::to_string(shape.count) + " x " + std::to_string(shape.n) + "^2";
    Row row{.id = "17", .name = "eigenvalues " + name, .must = shape.must, .aim = shape.aim};
    row.measured = 1e6 * times[0].best;
    row.smaller_is_better = true;
    row.unit = "us";
    row.spread = times[0].spread;
    row.roof = "one launch";
    emit(row);
    emit(ratio_row("17", "the same over cusolverDnXsyevBatched (f64)", 2, 5, times[1].best,
                   times[0], milliseconds("cuSOLVER", times[1].best)));
    emit(ratio_row("17", "the same over torch's eigvalsh", 100, 1000, torchs[0].best, times[0],
                   milliseconds("eigvalsh", torchs[0].best)));
  }
}

/// Seconds of device time for `steps` training steps.
double train(BenchModel& model, Monitor* monitor, int64_t steps, int64_t first) {
  at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
  begin.record();
  for (int64_t i = 0; i < steps; ++i) model.step(first + i, monitor);
  end.record();
  end.synchronize();
  return 1e-3 * static_cast<double>(begin.elapsed_time(end));
}

void step_rows(const Emit& emit) {
  struct Case {
    const char* name;
    BenchShape shape;
    double must, aim;
  };
  const Case cases[] = {{"GPT-2 124M", {12, 12, 64, 1024, 8, 50304}, 1.5, 0.8},
                        {"1B", {16, 32, 64, 2048, 2, 50304}, 0.4, 0.15}};
  for (const Case& one : cases) {
    BenchModel model(one.shape, on_gpu(at::kBFloat16));
    for (const int64_t every : {1, 10}) {
      Options options;
      options.schedule.train_every = every;
      options.schedule.budget = 0;
      options.log = [](LogLevel, const std::string&) {};
      Monitor monitor(options, {});
      const int64_t steps = 20;
      train(model, &monitor, every, 0);
      double off = std::numeric_limits<double>::infinity(), on = off, again = off;
      for (int round = 0; round < 3; ++round) {
        off = std::min(off, train(model, nullptr, steps, every));
        on = std::min(on, train(model, &monitor, steps, every));
        again = std::min(again, train(model, nullptr, steps, every));
      }
      Row row{.id = "18",
              .name = std::string("whole monitor, ") + one.name + ", k = " + std::to_string(every)};
      row.must = every == 10 ? 0.2 : one.must;
      row.aim = every == 10 ? 0.05 : one.aim;
      row.measured = 100 * (on / std::min(off, again) - 1);
      row.smaller_is_better = true;
      row.unit = "%";
      row.spread = std::max(off, again) / std::min(off, again) - 1;
      row.roof = milliseconds("a step", std::min(off, again) / steps);
      emit(row);
    }
  }
}

/// A measured step's taps under the check that turns every synchronisation into an error.
void synchronisation_row(const Emit& emit) {
  const at::Tensor q = at::randn({4, 12, 1024, 64}, on_gpu(at::kBFloat16));
  const at::Tensor z = at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
  Options options;
  options.schedule.train_every = 1;
  options.schedule.budget = 0;
  int errors = 0;
  options.log = [&](LogLevel, const std::string& line) {
    std::fprintf(stderr, "%s\n", line.c_str());
    ++errors;
  };
  Monitor monitor(options, {});
  for (int64_t step = 0; step < 3; ++step) {  // the first makes what is kept
    auto scope = monitor.begin_step({.step = step});
    scope.micro_batch(at::randint(500, {4, 1024}, at::kLong));
    if (step > 0) c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR);
    static_cast<void>(monitor.observe(0, q, q, q, z));
    c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED);
  }
  // While a graph is captured taps skip and are counted; the capture must survive them.
  const c10::cuda::CUDAStreamGuard guard(c10::cuda::getStreamFromPool());
  {
    auto scope = monitor.begin_step({.step = 3});
    at::cuda::CUDAGraph graph;
    graph.capture_begin();
    const at::Tensor doubled = monitor.observe(0, q, q, q, z) * 2;
    graph.capture_end();
    graph.replay();
    require_close(doubled, z * 2, 1e-6, "a replayed graph");
  }
  const auto report = monitor.report();
  Row row{
      .id = "19", .name = "taps that synchronise, or that break a capture", .must = 0, .aim = 0};
  row.measured = static_cast<double>(errors);
  for (const auto& [kind, count] : report.health.errors) row.measured += static_cast<double>(count);
  row.smaller_is_better = true;
  row.spread = 0;
  row.roof = "torch's sync debug mode; " + std::to_string(report.health.taps_skipped) +
             " taps skipped while captured";
  emit(row);
}

}  // namespace
}  // namespace headscope::bench

int main(int argc, char** argv) {
  using namespace headscope::bench;
  CLI::App app("Measures rows 15 to 19 of the goals on the first GPU.");
  std::string file;
  app.add_option("--json", file, "Write the rows into this file");
  CLI11_PARSE(app, argc, argv);
  try {
    if (!at::cuda::is_available()) throw std::runtime_error("no CUDA device on this machine");
    const auto* device = at::cuda::getCurrentDeviceProperties();
    Table table({{"device", device->name}, {"sms", device->multiProcessorCount}});
    const double bandwidth = copy_bandwidth();
    gram_row(table.emit(), bandwidth);
    attention_row(table.emit(), bandwidth);
    eigenvalue_rows_on_gpu(table.emit());
    synchronisation_row(table.emit());
    step_rows(table.emit());
    if (!file.empty()) table.write(file);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headscope_gpu_bench: %s\n", error.what());
    return 2;
  }
}
