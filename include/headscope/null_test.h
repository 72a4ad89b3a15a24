#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"

namespace headscope {

/// Input of the permutation test: what every probe row gives at every candidate target set, for all
/// heads. Candidates are common to all rows: a candidate's number means the same keys in each.
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
  /// [heads] (observed - null mean) / null standard deviation, exact moments; of a bound: standard
  /// errors that the mean lies above the floor. NaN: a head that is not finite; 0: one without
  /// spread.
  std::vector<double> z;
  /// [heads] (observed - null mean) / rows, in the values' unit; of a bound: the mean itself. NaN:
  /// a head that is not finite.
  std::vector<double> excess;
  /// The maximum of z over the heads.
  double max_z = 0;
  /// Family-wise, of max_z: (1 + draws that reach it) / (1 + draws).
  double p_value = 1;
  /// What max_z must reach: the floor(alpha (draws + 1))-th largest draw, or the largest where
  /// alpha is below what the draws resolve; of a bound: Student's quantile, which max_z must
  /// exceed. NaN: the answer was clear before enough draws were made.
  double critical_z = 0;
  /// Null draws made; fewer than asked for when the answer was already clear.
  int64_t draws = 0;
  /// Probe rows that entered.
  int64_t rows = 0;
  /// The level the test was run at.
  double alpha = 0;
  /// p_value <= alpha.
  bool significant = false;
  /// [heads] significant, and z >= critical_z.
  std::vector<bool> beats;
};

/// Max-T test (Westfall-Young) of `table` at level alpha (docs/math.md section 5).
///
///   z_h = (sum_r v[r, target_r, h] - E) / sqrt(Var)
///
/// A null draw is a permutation of the targets over the rows. E and Var are exact under it: rows *
/// mean of all v[i, target_j], and Hoeffding's sum of d_ij^2 / (rows - 1), d the double-centred
/// matrix of v[i, target_j]. A draw is the same for every head, and its value is the maximum of z
/// over the heads.
///
/// draws  0: enough to resolve alpha, ceil(1 / alpha), at least 999 and at most 200000 (a level
///        below 5e-6 is never met)
/// stop   kWhenClear: once 20 draws reach max_z (Besag-Clifford), with p = 20 / draws
/// seed   the draws are a function of seed alone (std::mt19937_64)
///
/// A head without spread under its null has z = 0 and takes no part. A score of -inf (a masked
/// candidate) counts as the head's smallest finite value in the table. NaN, +inf, or no finite
/// value make this head's z NaN and touch no other.
///
/// Sums are of floats in double: rounding below rows * 2^-53 of the summed magnitudes. Throws
/// std::invalid_argument when extents, targets or alpha do not fit. Cost: draws * rows * heads
/// additions. Thread-safe.
enum class StopDrawing { kWhenClear, kNever };
HEADSCOPE_API NullTestResult max_statistic_test(const CandidateTable& table, double alpha,
                                                uint64_t seed, int64_t draws = 0,
                                                StopDrawing stop = StopDrawing::kWhenClear);

/// Input of the bound: margins of every head at sampled queries, against one or more references
/// (the ordinary keys of the row, the keys beside the targets).
struct MarginTable {
  int64_t heads = 0;
  int64_t references = 0;
  std::vector<int32_t> row;       ///< [observations] the example that the query belongs to
  std::vector<int32_t> position;  ///< [observations] position of the query
  /// [observations, references, heads], innermost last: log-mean-exp of the targets' scores minus
  /// that of the reference's, nats.
  std::vector<float> values;
};

/// Which heads' mean margin lies above `floor`, by a family-wise lower bound at level alpha
/// (docs/math.md section 5). For patterns defined by a position, which no permutation can test.
///
///   mean - q se > floor        against every reference
///
/// se is robust to whatever queries of one row, or queries at one position of all rows, have in
/// common: the sum of the variances clustered by row and by position. q is Student's quantile at
/// alpha / heads, with the smaller number of clusters minus 1 degrees of freedom. z is the least
/// (mean - floor) / se of the references, excess the least mean; a constant margin counts as one
/// with an se of 1e-9 of it.
///
/// NaN makes a head's z NaN and touches no other; -inf counts as the head's smallest finite value.
/// Fewer than 4 rows or 4 positions say nothing: every z is NaN. Throws std::invalid_argument when
/// extents or alpha do not fit. Thread-safe.
HEADSCOPE_API NullTestResult effect_bound_test(const MarginTable& table, double floor,
                                               double alpha);

/// Level of the tests at one probe, such that the sum over all patterns and any number of probes
/// stays below alpha_run (alpha spending, docs/math.md section 5). 0: no test at this probe.
///
///   cumulative(n) = alpha_run / patterns * n / (n + planned_probes)
///
/// A probe gets what has accumulated since the last test, once that is `least`: a level that null
/// draws cannot resolve is saved up. probe_number counts from 1. Throws std::invalid_argument when
/// a count is below 1, alpha_run outside (0, 1), or least not positive.
HEADSCOPE_API double spent_alpha(double alpha_run, int64_t patterns, int64_t planned_probes,
                                 int64_t probe_number, double least = 1e-5);

}  // namespace headscope
