#include <ATen/ATen.h>

#include "headscope/monitor.h"
#include "tests/bench/runner.h"

namespace headscope::bench {
namespace {

/// The reference's way on one layer: eager attention with weights kept, a mean of target masses, an
/// SVD a head.
void reference_way(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(3)));
  const at::Tensor causal = at::ones({q.size(2), q.size(2)}, at::kBool).triu(1);
  const at::Tensor weights =
      at::softmax((at::matmul(q, k.transpose(2, 3)) * scale).masked_fill(causal, -INFINITY), -1);
  const at::Tensor z = at::matmul(weights, v);
  for (int64_t h = 0; h < z.size(1); ++h)
    at::linalg_svdvals(z.select(1, h).reshape({-1, z.size(3)}));
}

Row taps_row(int64_t tokens) {
  const int64_t batch = 4, heads = 12, width = 64;
  const at::Tensor q = at::randn({batch, heads, tokens, width}),
                   k = at::randn({batch, heads, tokens, width}),
                   v = at::randn({batch, heads, tokens, width});
  const at::Tensor z = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
  Options options;
  options.schedule.train_every = 1;
  options.schedule.budget = 0;
  options.self_check = false;
  Monitor monitor(options, {});
  int64_t step = 0;
  const auto ours = [&] {
    auto scope = monitor.begin_step({.step = step++});
    monitor.observe(0, q, k, v, z);
  };
  const auto times = time_interleaved({ours, [&] { reference_way(q, k, v); }});
  Row row{.id = "9",
          .name = "taps of a layer against eager + SVD, T = " + std::to_string(tokens),
          .unit = "x"};
  row.must = tokens == 256 ? 10 : 60;
  row.aim = tokens == 256 ? 15 : 100;
  row.measured = times[1].best / times[0].best;
  row.spread = times[0].spread;
  row.roof = "as users write it: " + std::to_string(1e3 * times[1].best) + " ms";
  return row;
}

Row idle_row() {
  Options options;
  options.measure = false;
  Monitor monitor(options, {});
  const at::Tensor q = at::randn({1, 2, 8, 4}), z = at::randn({1, 2, 8, 4});
  constexpr int kCalls = 1000000;
  double best = std::numeric_limits<double>::infinity(), worst = 0;
  for (int repetition = 0; repetition < 7; ++repetition) {
    const double start = thread_cpu_seconds();
    for (int i = 0; i < kCalls; ++i) {
      const at::Tensor same = monitor.observe(0, q, q, q, z);
      if (!same.is_same(z)) return {};
    }
    const double seconds = thread_cpu_seconds() - start;
    best = std::min(best, seconds);
    worst = std::max(worst, seconds);
  }
  Row row{"11", "idle tap, thread-CPU a layer and step"};
  row.must = 1;
  row.aim = 0.2;
  row.smaller_is_better = true;
  row.measured = 1e6 * best / kCalls;
  row.unit = "us";
  row.spread = worst / best - 1;
  row.roof = "monitor absent: 0";
  return row;
}

}  // namespace

void monitor_rows(const Emit& emit) {
  for (const int64_t tokens : {256, 1024}) emit(taps_row(tokens));
  emit(idle_row());
}

}  // namespace headscope::bench
