#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plugin/cli/compared_run.h"

namespace headscope::cli {

/// What runs are placed on: tokens where every run knows them, else steps.
enum class Axis { kTokens, kSteps };
/// "tokens" or "steps".
const char* to_string(Axis axis);
/// Place of a moment; NaN: it has none (it has not come to be).
double place_of(const Moment& moment, Axis axis);

/// A date of a circuit.
enum class Milestone { kEmerging, kFormed };
/// "emerging" or "formed".
const char* to_string(Milestone milestone);
Moment moment_of(const CircuitReading& circuit, Milestone milestone);

/// The range of the dates at which reference runs came to a milestone.
///
///   low, high   the smallest and the largest of the dates
///   of one      date / factor, date * factor: one run has no width
struct Band {
  int64_t references = 0;  ///< all that were given
  int64_t dated = 0;       ///< those that came to the milestone
  double low = kNaN, high = kNaN;
  double factor = 1;  ///< by which the band was made wider
};
Band band_of(const std::vector<double>& dates, double factor_of_one);

/// Where a run lies.
struct Standing {
  std::string verdict;  ///< "in band", "late", "early", "absent", "not due yet", "no band"
  double ratio = kNaN;  ///< late: date / high; early: low / date; absent: end / high so far
};
/// date: NaN when the run has not come to the milestone; end: its last probe.
Standing standing_of(const Band& band, double date, double end);

}  // namespace headscope::cli
