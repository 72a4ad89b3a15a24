#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headscope/ablation_runner.h"
#include "headscope/probe_batch.h"

namespace headscope {

/// Rows that an ablation is measured on, and where in them.
struct AblationBatch {
  at::Tensor tokens;     ///< [N, T] i64
  at::Tensor positions;  ///< [N, S] i64 whose logits are scored; undefined: by `loss` alone
  at::Tensor targets;    ///< [N, S] i64 what should follow them
  AblationLoss loss;     ///< in place of logits; may be empty
  at::Tensor rows;       ///< [N] i64 what `loss` calls the rows; needed with it alone
  int64_t micro_batch = 64;
};

/// The held-out batch on which one attempt (from 0) is judged: other draws than the probe that
/// found the circuit, and than the attempts before. N = options.examples rows; of held-out text at
/// most the distinct stretches that it has, in turn over the attempts. options: resolved().
///
///   kPlantedLoss   B after the last token of planted pairs
///   kRepeatedLoss  x_t, t = P + 1 .. T - 1, in distinct stretches of P tokens (repeat_period) of
///                  held-out text (or of random tokens), each repeated: the second copy without its
///                  first token
AblationBatch behaviour_batch(const ProbeOptions& options, BehaviourMetric metric, int64_t attempt);

/// Throws std::invalid_argument when held_out has fewer than 8 distinct stretches.
void check_held_out(const ProbeOptions& options);

}  // namespace headscope
