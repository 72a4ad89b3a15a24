// Rows 7 and 8 of the goals: attention of the last row against reading K once, torch's own last row
// and the full softmax.

#include <cstdio>

#include "headscope/measure.h"
#include "tests/bench/checked.h"
#include "tests/bench/stream_read.h"

namespace headscope::bench {
namespace {

constexpr int64_t kHeads = 12, kTokens = 1024, kWidth = 64;

/// One last-row problem with its plan made before, as a probe has it.
struct LastRow {
  explicit LastRow(int64_t batch)
      : q(at::randn({batch, kHeads, kTokens, kWidth})),
        k(at::randn({batch, kHeads, kTokens, kWidth})),
        rows(at::full({batch, 1}, kTokens - 1, at::kLong)),
        targets(at::full({batch}, 7, at::kLong)),
        offsets(at::arange(batch + 1, at::kLong)) {}

  at::Tensor ours() const { return attention_mass(q, k, rows, targets, offsets, 1).mass; }
  at::Tensor torchs() const {
    return at::softmax(at::matmul(q.narrow(2, kTokens - 1, 1), k.transpose(2, 3)) * 0.125, -1);
  }

  at::Tensor q, k, rows, targets, offsets;
};

}  // namespace

void attention_rows(const Emit& emit) {
  {
    const LastRow problem(4);
    require_close(problem.ours().flatten(), problem.torchs().select(3, 7).flatten(), 1e-4,
                  "last row");
    const int64_t floats = problem.k.numel();
    double checksum = 0;
    const auto times = time_interleaved(
        {[&] { problem.ours(); },
         [&] { checksum += stream_read(problem.k.const_data_ptr<float>(), floats); },
         [&] { problem.torchs(); }},
        61);
    emit(ratio_row("7", "last row against reading K once (12.6 MB)", 0.5, 0.65, times[1].best,
                   times[0],
                   milliseconds("reading K", times[1].best) + ", sum " + std::to_string(checksum)));
    emit(ratio_row("7", "last row against torch's own", 1.3, 1.9, times[2].best, times[0],
                   milliseconds("matmul + softmax of one row", times[2].best)));
    at::Tensor scores = at::empty({4, kHeads, kTokens, kTokens}), weights = at::empty_like(scores);
    const at::Tensor transposed = problem.k.transpose(2, 3);
    const auto full = [&] {
      at::matmul_out(scores, problem.q, transposed);
      scores.mul_(0.125);
      at::softmax_out(weights, scores, -1);
    };
    // Its two buffers of 201 MB leave nothing in the caches but themselves, most of it still to be
    // written to memory. The third of three calls finds K where the figures above do; what the
    // first takes is said beside it.
    const auto ours = [&] { problem.ours(); };
    const auto slow = time_interleaved({full, ours, ours, ours}, 9);
    char behind[64];
    std::snprintf(behind, sizeof(behind), "; right behind it, K not in the caches: %.0fx",
                  slow[0].best / slow[1].best);
    emit(ratio_row("7", "last row against the full softmax, buffers kept", 150, 300, slow[0].best,
                   slow[3], milliseconds("softmax(QK^T)", slow[0].best) + behind));
  }
  const LastRow large(64);  // 201 MB of keys: beyond every last-level cache seen
  require_close(large.ours().flatten(), large.torchs().select(3, 7).flatten(), 1e-4, "last row");
  double checksum = 0;
  const auto times = time_interleaved(
      {[&] { large.ours(); },
       [&] { checksum += stream_read(large.k.const_data_ptr<float>(), large.k.numel()); }});
  const double gigabytes = 4e-9 * static_cast<double>(large.k.numel());
  emit(ratio_row(
      "8", "last row, K of 201 MB, against reading it", 0.75, 0.9, times[1].best, times[0],
      milliseconds("reading K", times[1].best) + ", " + std::to_string(gigabytes / times[1].best) +
          " GB/s, sum " + std::to_string(checksum)));
}

}  // namespace headscope::bench
