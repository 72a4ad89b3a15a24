#pragma once

#include <cstdint>
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

}  // namespace headscope
