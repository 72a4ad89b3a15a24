#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "headscope/measure.h"
#include "headscope/patterns.h"

namespace headscope {

/// Sampled query positions of one training micro-batch and what attention_mass is asked about them.
///
/// Group p < P holds a pattern's targets, group control_group[p] its controls:
///
///   defined by content   (NullKind::kPermuteTargets) targets at least kSmallestGap before the
///                        query, against as many lag-matched keys that are no targets (natural
///                        induction: docs/math.md section 4); no targets without ids
///   defined by position  all targets, against ordinary keys of the row, the same for all of these
///                        patterns
///
/// Padding (keep false) is no query. A key that the query does not see (seen_keys) is neither
/// target nor control, and its token is no earlier occurrence: nothing is found across a document.
struct TrainPlan {
  static constexpr int64_t kSmallestGap = 8;
  static constexpr size_t kControls = 32;

  at::Tensor rows;     ///< [B, R] i64, ascending in a row; -1: unused (fewer than R tokens kept)
  at::Tensor seen;     ///< what the plan rests on (seen_keys)
  at::Tensor targets;  ///< arguments of attention_mass
  at::Tensor offsets;
  int64_t groups = 0;
  std::vector<int64_t> control_group;  ///< [P]
  std::vector<int32_t> target_count;   ///< [B * R * P]
  std::vector<int32_t> control_count;  ///< [B * R * P]
};

/// Plans a micro-batch: R = min(sampled, T) distinct positions of each sequence, uniform, a
/// function of seed alone (std::mt19937_64).
///
/// ids   [B, T] i64 on the CPU, or undefined
/// call  of the first layer that runs
TrainPlan plan_train(int64_t batch, int64_t tokens, const at::Tensor& ids,
                     std::span<const Pattern> patterns, int64_t sampled, uint64_t seed,
                     const AttentionCall& call = {});

/// The same for given rows [B, R] and what they see: of another layer of the same micro-batch.
TrainPlan plan_rows(const at::Tensor& rows, int64_t tokens, const at::Tensor& ids,
                    std::span<const Pattern> patterns, const at::Tensor& seen);

}  // namespace headscope
