#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "headscope/probe_batch.h"

namespace headscope {

/// What attention_mass is asked about the last row of every probe example, and where in its groups
/// each answer lies.
///
/// Groups of a row, in order, for P patterns, of which those with NullKind::kPermuteTargets are
/// "permuted":
///   [0, P)         the targets of pattern p (empty: the row does not count for p)
///   [P, 2P)        the keys that pattern p's margin is measured against: lag-matched for permuted
///                  patterns, else the controls
///   2P             the control positions of the selectivity
///   [2P + 1, ...)  the candidate target sets of the permuted patterns, common to all rows (one
///                  column each)
///   then           kUniformCandidates single control positions of the row (padded with empty
///                  groups)
struct ProbePlan {
  static constexpr int64_t kUniformCandidates = 32;
  static constexpr int64_t kMaxCandidateSets = 256;

  struct Chunk {
    at::Tensor tokens;   ///< [n, T]
    at::Tensor rows;     ///< [n, 1], T - 1
    at::Tensor targets;  ///< arguments of attention_mass
    at::Tensor offsets;
  };

  int64_t examples = 0;
  int64_t context = 0;
  int64_t span = 0;  ///< last keys that count, min(window, T): what thresholds scale with
  int64_t groups = 0;
  std::vector<Pattern> patterns;
  ControlPositions controls = ControlPositions::kMeasuredWithoutSpecial;
  std::vector<Chunk> chunks;
  std::vector<std::vector<int64_t>> target_count;  ///< [pattern][row]: number of targets
  /// [pattern][row]: the row's own candidate set; -1: none (permuted patterns only).
  std::vector<std::vector<int32_t>> candidate;
  int64_t candidate_sets = 0;
  std::vector<int64_t> uniform_count;  ///< [row]: single control positions that exist

  int64_t target_group(size_t pattern) const { return static_cast<int64_t>(pattern); }
  int64_t reference_group(size_t pattern) const {
    return static_cast<int64_t>(patterns.size() + pattern);
  }
  int64_t control_group() const { return 2 * static_cast<int64_t>(patterns.size()); }
  int64_t candidate_group(int64_t set) const { return control_group() + 1 + set; }
  int64_t uniform_group(int64_t i) const { return control_group() + 1 + candidate_sets + i; }
};

/// Plans the probe over `tokens` [N, T] i64. A pattern's target outside [0, T) is dropped; controls
/// and candidates lie within options.window of the last token. options: resolved().
ProbePlan plan_probe(const at::Tensor& tokens, const ProbeOptions& options);

}  // namespace headscope
