#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headscope/probe_batch.h"

namespace headscope {

/// The repeated block of a probe: random tokens x_0 .. x_{P-1} twice, and what attention_mass is
/// asked of its second copy (prefix matching): from query t the one target t - P + 1, which
/// followed the earlier occurrence of this token.
struct RepeatPlan {
  static constexpr int64_t kRows = 16;
  static constexpr int64_t kQueries = 16;

  int64_t period = 0;  ///< P
  at::Tensor tokens;   ///< [N, T]
  at::Tensor rows;     ///< [N, R] sampled queries of the second copy, evenly spaced
  at::Tensor targets;  ///< arguments of attention_mass, one group a row
  at::Tensor offsets;
};

/// P = T / 2, or window - 1 where that is less: then t sees the earlier occurrence of its token,
/// t - P, and the token after it.
int64_t repeat_period(const ProbeOptions& options);

/// Plans the repeated block of N = min(examples, kRows) rows. options: resolved().
RepeatPlan plan_repeat(const ProbeOptions& options);

/// Mean loss of tokens 1 .. P-1 in the first copy minus that of the same tokens in the second, in
/// nats. 0: nothing is gained from the repeat. NaN when forward gave no logits [N, T, V].
double repeat_gap(const at::Tensor& logits, const RepeatPlan& plan);

}  // namespace headscope
