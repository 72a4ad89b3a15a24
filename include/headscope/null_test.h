#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"

namespace headscope {

/// Input of the family-wise test: what every probe row gives at every candidate position, for all
/// heads.
///
/// Candidates by the kind of null:
///   kPermuteTargets   key positions common to all rows: a candidate's number means one position
///   kUniformControls  candidate 0 is the row's target, 1.. are the row's own control positions
struct CandidateTable {
  int64_t rows = 0;
  int64_t candidates = 0;
  int64_t heads = 0;
  /// [rows, candidates, heads], innermost last: pre-softmax score (nats) or attention mass of the
  /// head from the row's query to the candidate.
  std::vector<float> values;
  /// [rows] the candidate that is the row's true target.
  std::vector<int32_t> target;
};

/// Outcome of one family-wise test over all heads of a probe.
struct NullTestResult {
  /// [heads] (observed - null mean) / null standard deviation, exact moments. NaN: a head that is
  /// not finite; 0: one without spread.
  std::vector<double> z;
  /// [heads] (observed - null mean) / rows, in the values' unit. NaN: a head that is not finite.
  std::vector<double> excess;
  /// The maximum of z over the heads.
  double max_z = 0;
  /// Family-wise, of max_z: (1 + draws that reach it) / (1 + draws).
  double p_value = 1;
  /// What max_z must reach: the floor(alpha (draws + 1))-th largest draw, or the largest where
  /// alpha is below what the draws resolve.
  double critical_z = 0;
  /// Null draws made; fewer than asked for when the answer was already clear.
  int64_t draws = 0;
  /// The level the test was run at.
  double alpha = 0;
  /// p_value <= alpha.
  bool significant = false;
  /// [heads] significant, and z >= critical_z.
  std::vector<bool> beats;
};

/// Max-T test (Westfall-Young) of `table` at level alpha (docs/math.md section 5).
///
///   z_h = (sum_r v[r, target_r, h] - E) / sqrt(Var), E and Var exact under the null:
///
///   kind              a null draw                    E                   Var
///   kPermuteTargets   a permutation of the targets   rows * mean of      Hoeffding's: sum of
///                     over the rows                  all v[i, target_j]  d_ij^2 / (rows - 1)
///   kUniformControls  one candidate for each row,    sum of the rows'    sum of the rows'
///                     the target included            means               variances
///
/// d is the double-centred matrix of v[i, target_j]. A draw is the same for every head, and its
/// value is the maximum of z over the heads.
///
/// draws  0: enough to resolve alpha, ceil(1 / alpha), at least 999 and at most 200000 (a level
///        below 5e-6 is never met). Stops (Besag-Clifford) once 20 draws reach max_z and reports
///        p = 20 / draws; critical_z is then that of the draws made.
/// seed   the draws are a function of seed alone (std::mt19937_64)
///
/// A head without spread under its null has z = 0 and takes no part. A score of -inf (a masked
/// candidate) counts as the head's smallest finite value in the table. NaN, +inf, or no finite
/// value make this head's z NaN and touch no other.
///
/// Sums are of floats in double: rounding below rows * 2^-53 of the summed magnitudes. Throws
/// std::invalid_argument when extents, targets or alpha do not fit. Cost: draws * rows * heads
/// additions. Thread-safe.
HEADSCOPE_API NullTestResult max_statistic_test(const CandidateTable& table, NullKind kind,
                                                double alpha, uint64_t seed, int64_t draws = 0);

/// Level of the test of one pattern at one probe (alpha spending), such that the sum over all
/// patterns and any number of probes stays below alpha_run.
///
///   alpha_run / (patterns planned_probes 2^(1 + floor((probe_number - 1) / planned_probes)))
///
/// probe_number counts from 1. Throws std::invalid_argument when a count is below 1 or alpha_run
/// outside (0, 1).
HEADSCOPE_API double spent_alpha(double alpha_run, int64_t patterns, int64_t planned_probes,
                                 int64_t probe_number);

}  // namespace headscope
