#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/random_state.h"
#include "headscope/snapshot.h"

namespace headscope {

/// How the control sets of an ablation are drawn.
struct ControlOptions {
  int64_t wanted = 8;           ///< distinct disjoint control sets
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

/// Sets for random labelling: as many heads in each layer as the circuit has there, drawn from all
/// heads of these layers, the circuit's own included. Distinct, none of them the circuit itself.
struct LabelSets {
  std::vector<std::vector<HeadId>> sets;  ///< in random order
  double exist = 0;  ///< sets of this kind that there are, the circuit's own included
};

/// Draws up to `wanted` label sets, all others that exist where there are no more.
///
/// picked  the circuit's heads
/// heads   readings of all heads; only their ids are used
///
/// A function of seed alone (std::mt19937_64). Throws std::invalid_argument when a picked head is
/// given twice or is not among `heads`, or wanted < 1.
HEADSCOPE_API LabelSets draw_label_sets(std::span<const HeadId> picked,
                                        std::span<const HeadReading> heads, int64_t wanted,
                                        uint64_t seed);

/// When an effect counts (docs/math.md section 7).
struct VerdictRule {
  double confidence = 0.95;      ///< of the bootstrap intervals over distinct examples
  int64_t resamples = 4000;      ///< bootstrap draws
  double min_ratio = 3;          ///< effect >= min_ratio * control mean (a mean <= 0 passes)
  double smallest_effect = 0.1;  ///< nats: the smallest effect of interest
  /// Chance of a false `verified` by random labelling, over all attempts on a circuit.
  double level = 0.05;
  int64_t most_label_sets = 239;  ///< sets of random labelling that one attempt may run
  /// Label sets, whole layers and single heads are run on the first so many examples.
  int64_t labelled_examples = 32;
  uint64_t seed = 2026;
};

/// The plan of one random labelling test at `level`: how many sets it looks at, and when it is
/// decided. Two looks: passed when no set of the first `first` is as strong as the circuit, or at
/// most one of `last`. The two together keep the level (docs/math.md section 7). With no more than
/// `first` sets all are run, and p is exact.
struct LabelTest {
  double level = 0;
  int64_t first = 0;
  int64_t last = 0;         ///< never above the sets that there are
  bool exhaustive = false;  ///< all sets that exist are run

  /// level_left  of VerdictRule::level, what earlier attempts on this circuit have not used
  /// exist       LabelSets::exist
  /// Takes six tenths of level_left, or the smallest p that exist, where that is larger and still
  /// within level_left.
  HEADSCOPE_API static LabelTest plan(double level_left, double exist, const VerdictRule& rule);

  enum class Answer { kOpen, kPassed, kFailed };
  /// The answer after `run` sets, of which `as_strong` reached the circuit's effect.
  HEADSCOPE_API Answer after(int64_t run, int64_t as_strong) const;
  /// The smallest p that this test can give.
  double smallest_p() const { return 1 / (1 + static_cast<double>(last > 0 ? first : 0)); }
  /// Whether any outcome passes.
  HEADSCOPE_API bool possible() const;
};

/// Losses [examples] in nats, one vector for each pass over the same distinct examples.
struct AblationLosses {
  std::vector<double> baseline;                    ///< nothing ablated
  std::vector<double> ablated;                     ///< the circuit's heads
  std::vector<std::vector<double>> controls = {};  ///< each control set
  /// Each label set, in order, on the first n examples: [sets][n], n the same for all.
  std::vector<std::vector<double>> labelled = {};
  /// All heads of the circuit's layers, on the first examples; empty: not run.
  std::vector<double> upper_bound = {};
  /// Each head of the circuit alone, on the first examples; empty: not run.
  std::vector<std::vector<double>> single_heads = {};
};

/// Fills the figures, verdict and reason of `report`; its pattern, metric, step and heads are the
/// caller's (docs/math.md section 7).
///
///   effect       = mean ablated_i - mean baseline_i               i over distinct examples
///   difference_i = ablated_i - mean over controls of control_i
///   intervals    of effect and of the mean difference, by bootstrap over examples (and over the
///                control sets too for the difference)
///   p            = (1 + label sets with at least the circuit's effect) / (1 + label sets)
///
///   verified      effect's interval above smallest_effect; difference's interval above 0; effect
///                 >= min_ratio * mean control effect; the random labelling test passed
///   not_causal    effect's interval below smallest_effect
///   unspecific    effect's interval above smallest_effect, but controls have more than a
///                 min_ratio-th of it, or a quarter of the label sets as much
///   inconclusive  anything else; the reason says what is missing
///
/// Losses may stop early, as AblationTrial does: a verdict that an earlier condition has decided
/// needs no later one. Throws std::invalid_argument when lengths or numbers do not fit.
HEADSCOPE_API void judge_ablation(const AblationLosses& losses, const ControlSets& controls,
                                  const LabelSets& labels, const LabelTest& test,
                                  const VerdictRule& rule, AblationReport& report);

/// One ablation experiment, pass by pass: the circuit, its disjoint controls, label sets, all heads
/// of its layers, and each head alone where there are few controls. It asks for no pass whose
/// outcome cannot matter any more: a circuit without an effect ends it after the first.
///
/// Plain data, so that it can be saved between two passes. Begin with losses.baseline.
struct AblationTrial {
  std::vector<HeadId> heads;
  ControlSets controls;
  LabelSets labels;
  LabelTest test;
  std::vector<HeadId> whole_layers;  ///< every head of the circuit's layers
  int64_t labelled_examples = 0;     ///< VerdictRule::labelled_examples
  AblationLosses losses;             ///< entered so far
  bool has_effect = false;           ///< the effect's interval lies above the smallest effect
  bool beats_controls = false;       ///< the difference's lies above 0, and the ratio is reached

  /// Draws the sets. `pattern` is the circuit's index among HeadReading::patterns; level_left as in
  /// LabelTest::plan. Throws as the draws do.
  HEADSCOPE_API static AblationTrial of(std::vector<HeadId> heads,
                                        std::span<const HeadReading> readings, size_t pattern,
                                        const ControlOptions& controls, const VerdictRule& rule,
                                        double level_left);

  struct Pass {
    enum class Kind : uint8_t { kHeads, kControl, kLabelSet, kWholeLayers, kSingleHead };
    Kind kind = Kind::kHeads;
    std::vector<HeadId> heads;  ///< to ablate
    size_t examples = 0;        ///< run on the first so many
  };
  /// The pass to run next; nullopt: done. Throws std::logic_error without losses.baseline.
  HEADSCOPE_API std::optional<Pass> next() const;
  /// Losses [examples] of the pass that next() named.
  HEADSCOPE_API void enter(std::vector<double> losses_of_pass, const VerdictRule& rule);
  /// judge_ablation() on what was entered.
  HEADSCOPE_API void judge(const VerdictRule& rule, AblationReport& report) const;
};

}  // namespace headscope
