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

/// When a run came to a milestone, as far as its probes tell: after one and by the next.
struct Censored {
  double after = kNaN;  ///< the probe before; 0: there was none
  double by = kNaN;     ///< the probe that shows it; NaN: the run has not come to it
};

/// The range within which reference runs came to a milestone.
///
///   low, high   the smallest `after` and the largest `by`
///   of one      low / factor, high * factor: one run says nothing of the spread
struct Band {
  int64_t references = 0;  ///< all that were given
  int64_t dated = 0;       ///< those that came to the milestone
  double low = kNaN, high = kNaN;
  double factor = 1;  ///< by which the band was made wider
};
Band band_of(const std::vector<Censored>& dates, double factor_of_one);

/// Where a run lies. What the probes' intervals leave open is not held against it.
struct Standing {
  std::string verdict;  ///< "in band", "late", "early", "absent", "not due yet", "no band"
  /// At least by how much: late: after / high; early: low / by; absent: not_by / high so far.
  double ratio = kNaN;
};
/// not_by: the last place at which a run without a date is known not to have come to it. The
/// state asks for two probes in a row, so the last probe alone could be the first of them.
Standing standing_of(const Band& band, const Censored& date, double not_by);

}  // namespace headscope::cli
