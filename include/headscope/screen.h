#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"
#include "headscope/snapshot.h"

namespace headscope {

/// Selectivity threshold at context T for one stated at T = 256, at the same mass of a head that
/// spreads the rest of its attention evenly.
///
///   x(T) = x(256) (T - 1) / 255
HEADSCOPE_API double scaled_threshold(double at_256, int64_t context);

/// Class of a head: the index of the pattern with the largest selectivity, if that is >= threshold.
/// Ties go to the earlier pattern; NaN never wins. threshold: at the probe's context
/// (scaled_threshold).
HEADSCOPE_API std::optional<size_t> best_pattern(std::span<const PatternReading> patterns,
                                                 double threshold);

/// Members of a circuit among all heads, whatever their class: selectivity of `pattern` >=
/// threshold and, where the mass was measured, mass >= mass_floor. Ascending by id.
HEADSCOPE_API std::vector<HeadId> circuit_members(std::span<const HeadReading> heads,
                                                  size_t pattern, double threshold,
                                                  double mass_floor);

/// Shares of heads, 0..1; NaN without heads. For the pattern first-token these are
/// Snapshot::sink_any and sink_class.
struct PatternShares {
  double any = kNaN;       ///< selectivity of the pattern >= threshold
  double by_class = kNaN;  ///< the pattern is also the head's class
};
HEADSCOPE_API PatternShares pattern_shares(std::span<const HeadReading> heads, size_t pattern,
                                           double threshold);

/// The class of each head, as best_pattern.
HEADSCOPE_API std::vector<std::optional<size_t>> head_classes(std::span<const HeadReading> heads,
                                                              double class_threshold);

/// How many heads are looked at when nothing else is said: round(.18 n), at least 1 with a head.
HEADSCOPE_API int64_t default_top_k(int64_t heads);

/// What a screen calls a circuit, a class and a sink.
struct ScreenRules {
  std::string name = "headscope";
  double class_at_256 = 30;      ///< selectivity of a class at T = 256
  bool scale_to_context = true;  ///< thresholds by scaled_threshold; false: those of T = 256
  double mass_floor = .1;        ///< of a circuit's heads, where the mass was measured
  /// The previous-token circuit has heads of that class only: at least the threshold *and* the best
  /// class.
  bool previous_token_by_class = false;
  double sink_mass_floor = .3;  ///< mean attention on position 0 that makes a head a sink by mass

  /// The paper's: thresholds as stated whatever T, no mass, previous-token by class.
  static ScreenRules reference() {
    return {.name = "reference",
            .scale_to_context = false,
            .mass_floor = 0,
            .previous_token_by_class = true};
  }
};

/// Heads of one pattern whose selectivity reaches its own threshold.
struct ScreenCircuit {
  double threshold = kNaN;      ///< at the screen's context
  std::vector<HeadId> members;  ///< ascending
};

/// Of the first k heads by PR integral, those that have a class.
struct PrecisionAtK {
  int64_t k = 0;
  int64_t specialised = 0;
  double precision = kNaN;  ///< specialised / k
};

/// Heads that attend to position 0, counted three ways; shares of heads, 0..1.
struct SinkShares {
  double any = kNaN;          ///< selectivity of first-token >= the class threshold
  double by_class = kNaN;     ///< first-token is also the class
  double by_mass = kNaN;      ///< of those measured: mean attention on position 0 >= the floor
  int64_t mass_measured = 0;  ///< heads whose attention on position 0 is known
  std::map<int32_t, int64_t> any_by_layer;  ///< heads of `any`, for each layer
};

/// What a screen of all heads says.
struct Screen {
  ScreenRules rules;
  int64_t context = 0;
  double class_threshold = kNaN;
  std::vector<ScreenCircuit> circuits;  ///< by pattern
  std::vector<size_t>
      order;  ///< heads by PR integral, largest first, ties by id; only those with one
  std::vector<std::optional<size_t>> head_class;  ///< by head, as given
  std::vector<int64_t> classes;                   ///< heads by pattern; last: unclassified
  int64_t top_k = 0;                              ///< 0: too few heads have a PR integral
  std::vector<int64_t> top_classes;               ///< of the first top_k, likewise; empty without
  std::vector<PrecisionAtK> precision;            ///< k = 5, 10, 15, 20, 30, top_k where reached
  /// Share of the model's heads that have a class and are among the first top_k. Cannot exceed
  /// top_k / n, so it is nearly the same in every model by construction.
  double specialised_top = kNaN;
  double specialised = kNaN;        ///< share of all heads that have a class
  std::optional<SinkShares> sinks;  ///< where first-token is among the patterns
};

/// Screens all heads of a model (docs/math.md section 9).
///
/// patterns  names and thresholds, in the order of HeadReading::patterns
/// heads     readings of all heads; pr_integral NaN where it is not known
/// context   T of the readings
/// top_k     K; default_top_k if not given
///
/// Throws std::invalid_argument when a reading has another number of patterns, when context is
/// below 2, or when fewer than the given top_k heads have an integral.
HEADSCOPE_API Screen screen_heads(std::span<const Pattern> patterns,
                                  std::span<const HeadReading> heads, int64_t context,
                                  const ScreenRules& rules, std::optional<int64_t> top_k = {});

/// Heads whose selectivity of `pattern` is above each of the thresholds.
HEADSCOPE_API std::vector<int64_t> heads_above(std::span<const HeadReading> heads, size_t pattern,
                                               std::span<const double> thresholds);

/// Whether heads keep their class from one set of rows to another.
struct ClassStability {
  int64_t labelings = 0;
  int64_t heads = 0;
  double unanimous = kNaN;  ///< share of heads with one class in all of them
  double pairwise = kNaN;   ///< mean over pairs of labelings of the share of heads that agree
};

/// Compares the classes of the same heads, in the same order, over query positions or probe
/// batches. Having no class counts as a class. Throws std::invalid_argument on fewer than 2
/// labelings, no head, or different numbers of heads.
HEADSCOPE_API ClassStability
class_stability(std::span<const std::vector<std::optional<size_t>>> labelings);

}  // namespace headscope
