#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

#include "headscope/monitor.h"
#include "headscope/probe_batch.h"

namespace headscope {

/// The held-out batches on which one attempt is judged: other draws than the probe that found the
/// circuit, and than the attempts before.
struct BehaviourBatches {
  InductionBatch planted;
  /// [M, T] distinct stretches of P tokens of held-out text (or of random tokens), each repeated.
  at::Tensor repeated;
  int64_t period = 0;  ///< P (repeat_period)
  int64_t micro_batch = 64;
};

/// Draws the batches of an attempt (from 0), N = options.examples rows each; of held-out text at
/// most the distinct stretches that it has, in turn over the attempts. options: resolved().
BehaviourBatches behaviour_batches(const ProbeOptions& options, int64_t attempt);

/// Throws std::invalid_argument when held_out has fewer than 8 distinct stretches.
void check_held_out(const ProbeOptions& options);

/// Loss per example in nats, in f64, from one pass of the user's forward over a batch, or over its
/// first `examples` (0: all).
///
///   planted_loss   -log p(B) after the last token
///   repeated_loss  mean of -log p(x_t) over t = P + 1 .. T - 1: the second copy without its first
///                  token
///
/// Throws std::runtime_error when forward gives no logits [n, T, V].
std::vector<double> behaviour_losses(const ForwardFunction& forward,
                                     const BehaviourBatches& batches, BehaviourMetric metric,
                                     size_t examples = 0);

}  // namespace headscope
