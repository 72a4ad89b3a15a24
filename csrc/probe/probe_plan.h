#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "csrc/probe/query_plan.h"
#include "headscope/probe_batch.h"

namespace headscope {

/// What attention_mass is asked about the last query of every probe example, and where in its
/// groups each answer lies; `queries` has the same for patterns defined by a position.
///
/// Groups of a row, in order, for P patterns, of which those with NullKind::kPermuteTargets are
/// "permuted":
///   [0, P)         the targets of pattern p (empty: the row does not count for p)
///   [P, 2P)        the keys that pattern p's margin is measured against: lag-matched for permuted
///                  patterns, else the controls
///   2P             the control positions of the selectivity
///   [2P + 1, ...)  the candidate target sets of the permuted patterns, common to all rows (one
///                  column each)
struct ProbePlan {
  /// Distinct target sets that enter the permutation tests. Rows of further ones are counted in
  /// left_out: their selectivity is read, their margin is not tested.
  static constexpr int64_t kMaxCandidateSets = 512;

  struct Chunk {
    at::Tensor tokens;   ///< [n, T]
    at::Tensor rows;     ///< [n, 1], T - 1
    at::Tensor targets;  ///< arguments of attention_mass
    at::Tensor offsets;
  };

  int64_t examples = 0;
  int64_t context = 0;
  int64_t span = 0;  ///< last keys that count, min(window, T): what thresholds scale with
  QueryPlan queries;
  int64_t groups = 0;
  std::vector<Pattern> patterns;
  ControlPositions controls = ControlPositions::kMeasuredWithoutSpecial;
  std::vector<Chunk> chunks;
  std::vector<std::vector<int64_t>> target_count;  ///< [pattern][row]: number of targets
  /// [pattern][row]: the row's own candidate set; -1: none (permuted patterns only).
  std::vector<std::vector<int32_t>> candidate;
  int64_t candidate_sets = 0;
  std::vector<int64_t> left_out;  ///< [pattern] rows beyond kMaxCandidateSets

  /// What the threshold of each pattern scales with.
  std::vector<int64_t> contexts() const;
  /// The pattern's place in `queries`; -1: it is read at the last query.
  int64_t place_in_queries(size_t pattern) const;

  int64_t target_group(size_t pattern) const { return static_cast<int64_t>(pattern); }
  int64_t reference_group(size_t pattern) const {
    return static_cast<int64_t>(patterns.size() + pattern);
  }
  int64_t control_group() const { return 2 * static_cast<int64_t>(patterns.size()); }
  int64_t candidate_group(int64_t set) const { return control_group() + 1 + set; }
};

/// Plans the probe over `tokens` [N, T] i64. A pattern's target outside [0, T) is dropped; controls
/// and candidates lie within options.window of the last token. options: resolved().
ProbePlan plan_probe(const at::Tensor& tokens, const ProbeOptions& options);

}  // namespace headscope
