#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

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
  std::optional<AttentionRows> repeat;   ///< probe only: the repeated block
  int64_t calls = 0;                     ///< forwards seen in the current pass
  bool attention_trusted = true;         ///< false: the self-check failed
  std::string dtype;
};

/// Everything taps captured at one measured step.
struct Capture {
  std::map<int64_t, LayerCapture> layers;
  std::vector<TrainPlan> plans;  ///< train only: one per micro-batch
  int64_t context = 0;
  double repeat_gap = kNaN;  ///< probe only
};

/// What a failed self-check says.
struct SelfCheckFailure {
  int64_t layer;
  double error;
};

/// Adds z [B, H, T, D] to a spectrum; the first call chooses the shift: the mean of its first
/// tokens.
void capture_spectrum(SpectrumCapture& spectrum, const at::Tensor& z,
                      const std::optional<at::Tensor>& keep);

/// Largest difference between the given z and the one recomputed at `rows` of the first sequence,
/// relative to the largest recomputed value; NaN when either is not finite (reported elsewhere).
double self_check_error(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                        const at::Tensor& z, const AttentionCall& call, const at::Tensor& rows);

/// The error that rounding explains for a dtype.
double self_check_tolerance(at::ScalarType type);

/// Refuses what this build cannot measure: other devices, ranks, q, k, v and z that do not belong
/// together.
void check_attention_call(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const at::Tensor& z);

}  // namespace headscope
