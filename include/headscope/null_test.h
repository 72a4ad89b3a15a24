#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"

namespace headscope {

/// What every probe row gives at every candidate position, for all heads: input of the family-wise
/// test.
///
/// values[(row * candidates + c) * heads + h]: pre-softmax score (nats) or attention mass of head h
/// from row's query to its candidate c. target[row]: index of the row's true target among its
/// candidates. kPermuteTargets: candidates are key positions common to all rows (a column means one
/// position). kUniformControls: candidate 0 is the target and 1.. are the row's own control
/// positions.
struct CandidateTable {
  int64_t rows = 0;
  int64_t candidates = 0;
  int64_t heads = 0;
  std::vector<float> values;
  std::vector<int32_t> target;  ///< [rows]
};

/// Outcome of one family-wise test over all heads of a probe.
struct NullTestResult {
  std::vector<double> z;  ///< [heads] (observed - null mean) / null sd, exact moments; NaN: head
                          ///< not finite; 0: sd 0
  std::vector<double>
      excess;  ///< [heads] (observed - null mean) / rows, in the values' unit; NaN: not finite
  double max_z = 0;       ///< the maximum statistic
  double p_value = 1;     ///< family-wise, of max_z: (1 + draws that reach it) / (1 + draws)
  double critical_z = 0;  ///< the value max_z must reach: the floor(alpha (draws + 1))-th largest
                          ///< draw, or the largest draw where alpha is below what the draws resolve
  int64_t draws = 0;      ///< null draws made; fewer than asked when the answer was already clear
  double alpha = 0;       ///< the level it was run at
  bool significant = false;  ///< p_value <= alpha
  std::vector<bool> beats;   ///< [heads] z >= critical_z and significant
};

/// Max-T test (Westfall-Young) of `table` at level alpha.
///
/// Statistic of a head: the mean over rows of the value at the target, standardised by its exact
/// mean and variance under the null: for permutations Hoeffding's (mean of all entries; sum of
/// squared double-centred entries / (n - 1)), for uniform controls the sums of the rows' means and
/// variances over all their candidates, target included. Null draw: one permutation of targets over
/// rows, or one candidate drawn per row; the same draw for every head. A head without spread under
/// its null has z = 0 and takes no part. A score of -inf (a masked candidate) counts as the head's
/// smallest finite value in the table; NaN, +inf or no finite value at all make this head's z NaN,
/// no other's. draws: 0 = enough to resolve alpha: ceil(1 / alpha), at least 999, at most 200000 (a
/// level below 5e-6 is never met). Stops early (Besag-Clifford) once 20 draws reach max_z, and
/// reports p = 20 / draws; critical_z is then taken from the draws made. seed: the draw is a
/// function of seed alone (std::mt19937_64). Sums are of floats in double: rounding below rows *
/// 2^-53 of the summed magnitudes. Throws std::invalid_argument when extents, targets or alpha do
/// not fit. Cost: draws * rows * heads additions.
HEADSCOPE_API NullTestResult max_statistic_test(const CandidateTable& table, NullKind kind,
                                                double alpha, uint64_t seed, int64_t draws = 0);

/// Level of one test: half of alpha_run is spread evenly over the first `planned_probes` probes, a
/// quarter over the next as many, and so on, and evenly over `patterns`: the sum over any number of
/// probes stays below alpha_run. probe_number counts from 1. Throws std::invalid_argument when a
/// count is below 1 or alpha_run outside (0, 1).
HEADSCOPE_API double spent_alpha(double alpha_run, int64_t patterns, int64_t planned_probes,
                                 int64_t probe_number);

}  // namespace headscope
