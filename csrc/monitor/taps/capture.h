#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "csrc/monitor/taps/self_check.h"
#include "csrc/monitor/taps/tapped_call.h"
#include "csrc/probe/probe_plan.h"
#include "csrc/probe/repeat_plan.h"
#include "csrc/probe/train_plan.h"
#include "headscope/measure.h"
#include "headscope/monitor.h"

namespace headscope {

/// Second moment of one layer's output about a shift: G, sums, N (headscope/measure.h).
struct SpectrumCapture {
  at::Tensor gram;
  at::Tensor sum;
  at::Tensor count;
  at::Tensor shift;
  bool empty() const { return !gram.defined(); }
};

/// What one layer left behind at one measured step: small tensors only, no view of the host's.
struct LayerCapture {
  SpectrumCapture spectrum;
  SpectrumCapture null_spectrum;         ///< probe only: the random-token rows
  std::vector<AttentionRows> attention;  ///< one per micro-batch or probe chunk
  std::vector<size_t> plan_of;           ///< train only: the plan of each, in Capture::plans
  std::vector<at::Tensor> seen;          ///< probe only: keys seen in each chunk (seen_keys)
  /// Probe only: at the sampled queries of each chunk (QueryPlan); empty: the plan has none.
  std::vector<AttentionRows> query_attention;
  std::vector<at::Tensor> query_seen;
  at::Tensor sinks;                     ///< probe only: [Hq] f64 sink logits; undefined: none
  SelfCheck self_check;                 ///< of the first call; empty: not compared
  std::optional<AttentionRows> repeat;  ///< probe only: the repeated block
  std::map<std::thread::id, size_t>
      calls;                      ///< train only: forwards seen, by the thread they ran on
  bool attention_trusted = true;  ///< false: the self-check failed (judge_self_checks)
  at::ScalarType type = at::ScalarType::Undefined;  ///< of z
};

/// Everything taps captured at one measured step.
struct Capture {
  std::map<int64_t, LayerCapture> layers;
  std::vector<TrainPlan> plans;  ///< train only
  /// Train only: one micro-batch, the n-th forward of one thread. All of its plans have the sampled
  /// rows of the first; there is another for each set of layers whose rows see other keys.
  struct MicroBatch {
    int64_t tokens = 0;
    std::vector<size_t> plans;
  };
  std::vector<MicroBatch> micro_batches;
  std::map<std::pair<std::thread::id, size_t>, size_t> micro_of;  ///< (thread, n) -> micro-batch
  int64_t context = 0;
  double repeat_gap = kNaN;  ///< probe only
  bool whole = true;         ///< probe only: all chunks of the plan ran

  /// Probe only: chunks of the plan that ran.
  size_t chunks() const {
    size_t most = 0;
    for (const auto& [layer, own] : layers) most = std::max(most, own.attention.size());
    return most;
  }
};

/// Adds z [B, H, T, D] to a spectrum; the first call chooses the shift: the mean of its first
/// tokens, zero for heads in bf16 on the CPU whose means do not exceed the standard deviations.
void capture_spectrum(SpectrumCapture& spectrum, const at::Tensor& z,
                      const std::optional<at::Tensor>& keep);

/// Refuses by name what this build cannot measure: other devices, nested tensors, ranks, q, k, v, z
/// and call that do not belong together, cross-attention and decoding.
void check_attention_call(const TappedCall& tapped);

/// Index in capture.plans of the plan that fits what this call's rows see; made when there is none.
/// ids [B, T] or undefined; seed: of the micro-batch.
size_t plan_for(Capture& capture, size_t micro, int64_t layer, const at::Tensor& q,
                const AttentionCall& call, const at::Tensor& ids, std::span<const Pattern> patterns,
                int64_t sampled, uint64_t seed);

}  // namespace headscope
