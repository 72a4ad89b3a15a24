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

/// Selectivity threshold at context T for one stated at T = 256, at equal attention mass: x256 (T -
/// 1) / 255.
HEADSCOPE_API double scaled_threshold(double at_256, int64_t context);

/// Class by best selectivity: the index of the pattern with the largest selectivity if that is >=
/// `threshold` (already scaled), nothing otherwise. Ties go to the earlier pattern; NaN never wins.
HEADSCOPE_API std::optional<size_t> best_pattern(std::span<const PatternReading> patterns,
                                                 double threshold);

/// Membership over all heads, whatever their best class: selectivity of `pattern` >= threshold and,
/// where the mass was measured, mass >= mass_floor. Ascending by id.
HEADSCOPE_API std::vector<HeadId> circuit_members(std::span<const HeadReading> heads,
                                                  size_t pattern, double threshold,
                                                  double mass_floor);

/// Share of heads whose selectivity of `pattern` reaches the threshold, and of those where it is
/// also the best class. Names of the two figures for first-token: sink_any and sink_class. NaN
/// without heads.
struct PatternShares {
  double any = kNaN;
  double by_class = kNaN;
};
HEADSCOPE_API PatternShares pattern_shares(std::span<const HeadReading> heads, size_t pattern,
                                           double threshold);

}  // namespace headscope
