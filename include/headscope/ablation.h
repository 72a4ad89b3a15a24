#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/random_state.h"
#include "headscope/snapshot.h"

namespace headscope {

/// How the control sets of an ablation are drawn.
struct ControlOptions {
  int64_t wanted = 19;          ///< distinct control sets; 19 make p = 0.05 attainable
  double recall_threshold = 2;  ///< eligible: heads whose selectivity of the pattern is below this
  uint32_t seed = 123;
};

/// The control sets of a circuit: distinct sets with as many heads in each layer as `picked` has
/// there, none of them picked.
struct ControlSets {
  std::vector<std::vector<HeadId>> sets;
  /// No more than wanted exist, and all are used.
  bool all_that_exist = false;
  /// A layer had too few heads below the recall threshold; its least selective others were added.
  bool relaxed = false;
  /// A layer had fewer unpicked heads than picked ones, so its part of each set is smaller.
  bool short_layers = false;
};

/// Draws the control sets of a circuit (docs/math.md section 7).
///
/// picked   the circuit's heads
/// heads    readings of all heads: their selectivity and output norm
/// pattern  index of the circuit's pattern among HeadReading::patterns
///
/// With more sets than wanted, a random pool of distinct ones is drawn, and those are kept whose
/// summed squared output norm is closest to the picked heads'. A norm that is not known counts as
/// farthest, a head without selectivity as not eligible. Sets and their heads ascend. Empty when no
/// layer has an unpicked head. Throws std::invalid_argument when a picked head is given twice or is
/// not among `heads`.
HEADSCOPE_API ControlSets draw_control_sets(std::span<const HeadId> picked,
                                            std::span<const HeadReading> heads, size_t pattern,
                                            const ControlOptions& options);

/// The reference's single matched-random control, bit for bit (protocol section 6).
///
/// For each layer, in the order of first appearance in `picked`: as many of its unpicked heads as
/// it has picked ones (or all, if fewer), ascending. The reference's sweep over thresholds shares
/// one generator: pass the same `random` on.
HEADSCOPE_API std::vector<HeadId> matched_random_reference(std::span<const HeadId> picked,
                                                           int64_t heads_per_layer,
                                                           RandomState& random);

/// Losses [examples] in nats, one vector for each pass over the same examples.
struct AblationLosses {
  std::vector<double> baseline;               ///< nothing ablated
  std::vector<double> ablated;                ///< the circuit's heads
  std::vector<std::vector<double>> controls;  ///< each control set
  std::vector<double> upper_bound;            ///< all heads of the circuit's layers; empty: not run
};

/// When an effect counts.
struct VerdictRule {
  double confidence = 0.95;      ///< of the paired bootstrap interval (percentile, over examples)
  int64_t resamples = 4000;      ///< bootstrap draws
  double min_ratio = 3;          ///< effect >= min_ratio * control mean (a mean <= 0 passes)
  double smallest_effect = 0.1;  ///< nats: `not causal` needs the whole interval below it
  uint64_t seed = 2026;
};

/// Fills the figures, verdict and reason of `report`; its pattern, metric, step and heads are the
/// caller's (docs/math.md section 7).
///
///   effect       = mean ablated_i - mean baseline_i               i over examples
///   difference_i = ablated_i - mean over controls of control_i
///   interval     of the mean difference, by bootstrap over examples
///
///   verified      effect > 0, interval above 0, effect >= min_ratio * mean control effect, and
///                 effect larger than every control's
///   not causal    not verified, and the interval's upper end is below smallest_effect
///   inconclusive  anything else; no control; fewer than 8 examples; a loss that is not finite
///
/// Throws std::invalid_argument when the vectors' lengths or the numbers of controls differ.
HEADSCOPE_API void judge_ablation(const AblationLosses& losses, const ControlSets& controls,
                                  const VerdictRule& rule, AblationReport& report);

}  // namespace headscope
