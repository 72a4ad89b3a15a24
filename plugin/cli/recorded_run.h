#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "headscope/snapshot.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/recorded_thresholds.h"

namespace headscope::cli {

/// One reading of a recorded trajectory; files have millions.
struct RecordedReading {
  HeadId head;
  uint32_t pattern = 0;  ///< number
  double selectivity = kNaN, mass = kNaN, margin = kNaN, participation_ratio = kNaN;
};

/// All readings of one step of a stretch, by head and number of pattern.
struct RecordedProbe {
  double tokens = kNaN;
  std::vector<RecordedReading> readings;
};

/// A part of the run within which steps only go on: a data phase, or what follows a step that went
/// back.
struct Stretch {
  std::string phase;  ///< empty without a `phase` column
  std::map<int64_t, RecordedProbe> probes;
};

/// A recorded selectivity trajectory in the order that the states are decided in.
struct RecordedRun {
  std::vector<std::string> patterns;  ///< standard ones first, in their order
  std::vector<HeadId> heads;          ///< ascending
  std::vector<Stretch> stretches;
  std::optional<int64_t> context;  ///< of the `context` column
  RecordedThresholds formed_thresholds;
  int64_t rows = 0;
  int64_t skipped = 0;  ///< selectivity empty or not finite
  /// Rows after which another row of the same pattern, head and step came in their stretch.
  int64_t superseded = 0;
};

/// Reads a file of columns step, layer, head, selectivity and optionally pattern, tokens (or
/// tokens_b), mass, margin, participation_ratio, phase, context, formed_threshold, source. Without
/// `selectivity`, the columns that are called like standard patterns are theirs, and a wide table's
/// values are.
///
/// The series of each pattern and head is followed in file order: another phase, or a step that
/// goes back, begins its next stretch; stretches of the series are joined by phase and number.
/// Throws InputError naming file, line, column and value.
RecordedRun read_recorded_run(const ReplayArguments& arguments);

}  // namespace headscope::cli
