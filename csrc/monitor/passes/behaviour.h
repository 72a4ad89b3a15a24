#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "headscope/monitor.h"
#include "headscope/probe_batch.h"

namespace headscope {

/// The held-out batches on which ablations are judged: other draws than the probe that found the
/// circuit.
struct BehaviourBatches {
  InductionBatch planted;  ///< seed + 1
  at::Tensor repeated;     ///< [N, T] held-out text (or random tokens), its first P tokens repeated
  int64_t period = 0;      ///< P (repeat_period)
  int64_t micro_batch = 64;
};
BehaviourBatches behaviour_batches(const ProbeOptions& options);

/// Loss per example in nats, in f64, from one pass of the user's forward over a batch.
///
///   planted_loss   -log p(B) after the last token
///   repeated_loss  mean of -log p(x_t) over t = P + 1 .. T - 1: the second copy without its first
///                  token
///
/// Throws std::runtime_error when forward gives no logits [n, T, V].
std::vector<double> behaviour_losses(const ForwardFunction& forward,
                                     const BehaviourBatches& batches, BehaviourMetric metric);

}  // namespace headscope
