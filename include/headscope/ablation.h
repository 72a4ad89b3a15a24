#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/random_state.h"
#include "headscope/snapshot.h"

namespace headscope {

/// How controls are drawn.
struct ControlOptions {
  int64_t wanted = 19;          ///< distinct control sets; 19 make p = .05 attainable
  double recall_threshold = 2;  ///< eligible: selectivity of the pattern below this
  uint32_t seed = 123;
};

/// The control sets of a circuit: distinct sets with as many heads per layer as `picked` has, none
/// of them picked.
struct ControlSets {
  std::vector<std::vector<HeadId>> sets;
  bool all_that_exist = false;  ///< no more than wanted exist, all are used
  bool relaxed = false;         ///< a layer had too few heads below the recall threshold; the least
                                ///< selective others were added
  bool short_layers =
      false;  ///< a layer had fewer unpicked heads than picked ones, so its sets are smaller
};

/// Draws controls. With more sets than wanted, a random pool of distinct ones is drawn and those
/// are kept whose summed squared output norm is closest to the picked heads' (a norm that is not
/// known counts as farthest). Sets and their heads are in ascending order. A head without
/// selectivity counts as not eligible. Empty when no layer has an unpicked head. Throws
/// std::invalid_argument when a picked head is given twice or is not among `heads`.
HEADSCOPE_API ControlSets draw_control_sets(std::span<const HeadId> picked,
                                            std::span<const HeadReading> heads, size_t pattern,
                                            const ControlOptions& options);

/// The reference's single matched-random draw, bit for bit (protocol section 6): for each layer in
/// order of first appearance in `picked`, min(#picked, #eligible) of the unpicked heads, ascending.
/// Layers come in that order. The reference's threshold sweep shares one generator over all its
/// thresholds: pass the same `random` on.
HEADSCOPE_API std::vector<HeadId> matched_random_reference(std::span<const HeadId> picked,
                                                           int64_t heads_per_layer,
                                                           RandomState& random);

/// Losses per example [examples], one vector a forward pass over the same examples.
struct AblationLosses {
  std::vector<double> baseline;
  std::vector<double> ablated;
  std::vector<std::vector<double>> controls;  ///< one vector a control set
  std::vector<double> upper_bound;  ///< all heads of the picked heads' layers; empty: not run
};

/// When an effect counts.
struct VerdictRule {
  double confidence = 0.95;  ///< of the paired bootstrap interval (percentile, over examples)
  int64_t resamples = 4000;
  double min_ratio = 3;  ///< effect >= min_ratio * control mean (a control mean <= 0 passes)
  double smallest_effect = 0.1;  ///< nats: `not causal` needs the whole interval below it
  uint64_t seed = 2026;
};

/// Fills the figures, verdict and reason of `report` (pattern, metric, step and heads are the
/// caller's).
///
/// difference_i = ablated_i - mean over controls of control_i.
/// verified: effect > 0, interval of the mean difference above 0, effect >= min_ratio * control
/// mean, and effect larger than every control's. not causal: not verified, and the interval's upper
/// end is below smallest_effect. Otherwise, without any control, with fewer than 8 examples (no
/// bootstrap), or on non-finite losses: inconclusive. Throws std::invalid_argument when the
/// vectors' lengths or the numbers of controls differ.
HEADSCOPE_API void judge_ablation(const AblationLosses& losses, const ControlSets& controls,
                                  const VerdictRule& rule, AblationReport& report);

}  // namespace headscope
