#include <ATen/ATen.h>

#include "headscope/monitor.h"
#include "tests/bench/checked.h"

namespace headscope::bench {
namespace {

/// The reference's way on one layer: eager attention with its weights kept and an SVD a head.
/// Causal masks are made once, as models do.
class ReferenceWay {
 public:
  ReferenceWay(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)
      : q_(q),
        k_(k),
        v_(v),
        transposed_(k.transpose(2, 3)),
        causal_(at::ones({q.size(2), q.size(2)}, at::kBool).triu(1)),
        scores_(at::empty({q.size(0), q.size(1), q.size(2), q.size(2)})),
        weights_(at::empty_like(scores_)),
        z_(at::empty_like(v)),
        scale_(1 / std::sqrt(static_cast<double>(q.size(3)))) {}

  void as_users_write_it() const {
    const at::Tensor weights =
        at::softmax((at::matmul(q_, transposed_) * scale_).masked_fill(causal_, -INFINITY), -1);
    spectra(at::matmul(weights, v_));
  }
  void with_buffers_kept() {
    at::matmul_out(scores_, q_, transposed_);
    scores_.mul_(scale_).masked_fill_(causal_, -INFINITY);
    at::softmax_out(weights_, scores_, -1);
    at::matmul_out(z_, weights_, v_);
    spectra(z_);
  }

 private:
  static void spectra(const at::Tensor& z) {
    for (int64_t h = 0; h < z.size(1); ++h)
      at::linalg_svdvals(z.select(1, h).reshape({-1, z.size(3)}));
  }

  at::Tensor q_, k_, v_, transposed_, causal_, scores_, weights_, z_;
  double scale_;
};

void taps_rows(int64_t tokens, const Emit& emit) {
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
    static_cast<void>(monitor.observe(0, q, k, v, z));
  };
  ReferenceWay reference(q, k, v);
  const auto times = time_interleaved(
      {ours, [&] { reference.with_buffers_kept(); }, [&] { reference.as_users_write_it(); }});
  const bool small = tokens == 256;
  const std::string suffix = ", T = " + std::to_string(tokens);
  emit(ratio_row("9", "taps of a layer, eager + SVD with buffers kept" + suffix, small ? 6 : 25,
                 small ? 12 : 40, times[1].best, times[0],
                 milliseconds("buffers kept", times[1].best)));
  emit(ratio_row("9", "the same as users write it" + suffix, small ? 10 : 60, small ? 15 : 100,
                 times[2].best, times[0], milliseconds("as written", times[2].best)));
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
  for (const int64_t tokens : {256, 1024}) taps_rows(tokens, emit);
  emit(idle_row());
}

}  // namespace headscope::bench
