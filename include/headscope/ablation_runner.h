#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "headscope/ablation.h"
#include "headscope/ablation_measures.h"
#include "headscope/monitor.h"
#include "headscope/patterns.h"
#include "headscope/random_state.h"

namespace headscope {

/// What stands in an ablated head's place, in its output z [N, T, D] before heads are merged.
enum class Replacement : uint8_t {
  kZero,
  /// The head's mean output over all rows and positions of a batch without ablation, [D].
  kMean,
  /// The head's output on another row without ablation, at the same position. Rows lie on one
  /// random cycle, so that none keeps its own.
  kResample,
};

/// At which positions.
enum class AblatedPositions : uint8_t {
  kAll,    ///< as the reference protocol does
  kQuery,  ///< only where the logits are scored
};

/// A loss of the user's own: one value for each row of `tokens`, [n], in nats where a verdict is
/// wanted. Run what it needs through `forward`, which is the probe's: that is where heads are
/// ablated.
///
/// rows  [n] i64 on the CPU: which rows of the request's tokens these are, for labels of its own
using AblationLoss = std::function<at::Tensor(const ForwardFunction& forward,
                                              const at::Tensor& tokens, const at::Tensor& rows)>;

/// An ablation: which heads, on which rows, replaced by what, beside which controls.
struct AblationRequest {
  std::vector<HeadId> heads;  ///< any set; required

  // --- the rows: of the probe, or the user's own
  /// Without tokens: the held-out planted pairs (kPlantedLoss) or repeated block (kRepeatedLoss) of
  /// the probe, as a verification's.
  BehaviourMetric batch = BehaviourMetric::kPlantedLoss;
  /// Chooses the held-out rows of `batch`: those of attempt 0, 1, .. on a circuit.
  int64_t attempt = 0;
  /// [N, T] i64. A row given twice (with its query and target) is run once: the first.
  at::Tensor tokens = {};
  std::vector<int64_t> query_positions =
      {};                             ///< [N] the logits scored in each row; empty: the last
  std::vector<int64_t> targets = {};  ///< [N] token ids: what should follow the query
  AblationLoss loss = {};             ///< in place of targets

  // --- what is put in place of a head's output, and where
  Replacement replacement = Replacement::kZero;
  AblatedPositions positions = AblatedPositions::kAll;
  /// [M, T'] i64 rows that the mean is taken over; with kResample [M, T] rows that outputs are
  /// taken from, in turn. Undefined: the request's own.
  at::Tensor reference = {};
  uint32_t resample_seed = 1;

  // --- beside it
  /// Disjoint sets are drawn below this pattern's recall threshold in the last probe. Empty: from
  /// all other heads of the layers.
  std::string pattern = {};
  ControlOptions controls = {};
  VerdictRule rule = {};
  /// Runs the disjoint sets even when the heads have no effect that would need them.
  bool always_controls = false;
  /// Each head alone, and every head of the layers together (the upper bound), on all rows. Not
  /// asked for, they are run where the verdict's words have them, on the label sets' examples.
  bool single_heads = false;
  bool whole_layers = false;
  /// One of the reference's matched-random draws for each seed, from a generator of its own.
  std::vector<uint32_t> reference_seeds = {};
  /// One more draw, from a generator that goes on: the reference's sweep over thresholds draws all
  /// its sets from one. May be null; must outlive the call.
  RandomState* reference_sweep = nullptr;
};

/// A measure over several passes with other heads: of the means of the passes.
struct MeasureSpread {
  double mean = kNaN;
  double change = kNaN;  ///< mean - the mean without ablation
  double sd = kNaN;      ///< over n, as the reference has it; NaN: fewer than 2 passes
};

/// What an ablation gave. Passes have the request's examples in order, label sets, and
/// single heads and whole layers that were not asked for, the first of them
/// (VerdictRule::labelled_examples).
struct AblationResult {
  std::vector<int64_t> rows;  ///< which of the batch's rows the examples are: the distinct ones
  AblationPass baseline;      ///< nothing ablated
  AblationPass ablated;       ///< the request's heads
  std::vector<AblationPass> controls;         ///< disjoint sets, as far as they were run
  std::vector<AblationPass> label_sets;       ///< random labelling; changes without intervals
  std::vector<AblationPass> whole_layers;     ///< every head of the layers: none or one
  std::vector<AblationPass> single_heads;     ///< in the request's order, as far as they were run
  std::vector<AblationPass> reference_draws;  ///< reference_seeds', then reference_sweep's
  /// Over reference_draws: one draw alone is no control to rest on.
  ByMeasure<MeasureSpread> reference_spread;
  /// Against the mean change of the disjoint sets.
  ByMeasure<Specificity> specificity;
  /// Against each of the reference's draws.
  std::vector<ByMeasure<Specificity>> reference_specificity;
  /// The verdict by the loss (judge_ablation) and what it rests on in words. metric is
  /// "planted_loss", "repeated_loss", "target_loss" or "own_loss"; step and gate stay as they are.
  AblationReport report;
};

}  // namespace headscope
