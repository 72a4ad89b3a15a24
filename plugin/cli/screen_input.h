#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headscope/patterns.h"
#include "headscope/snapshot.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/recorded_thresholds.h"

namespace headscope::cli {

/// Readings of all heads over one set of rows.
struct ScreenedBatch {
  std::string name;                ///< of the column `batch`; empty without one
  std::vector<HeadReading> heads;  ///< ascending by id, with a reading for each pattern
};

/// Readings of all heads at one step of a recorded trajectory.
struct RecordedScreen {
  std::vector<Pattern> patterns;       ///< standard ones first, in their order
  std::vector<ScreenedBatch> batches;  ///< in order of appearance, all of the same heads
  std::optional<int64_t> step;         ///< of the column `step`
  std::string phase;                   ///< of the column `phase`
  std::optional<int64_t> context;      ///< of the column `context`
  RecordedThresholds formed_thresholds;
  RecordedThresholds recall_thresholds;  ///< of that step
  int64_t rows = 0;                      ///< of that step
  int64_t skipped = 0;                   ///< selectivities among them that are empty or not finite
  int64_t superseded = 0;  ///< after which another of the same batch, head and pattern came
  // Rows of the file that are not of what is screened.
  int64_t other_sources = 0, other_phases = 0, other_steps = 0;
};

/// Reads a file of columns layer, head and either pattern, selectivity (one row for each pattern,
/// what `history` prints) or a column of selectivities for each standard pattern; optionally step,
/// mass, pr_integral, sink_mass, phase, context, formed_threshold, recall_threshold, source, batch.
///
/// The step is the one asked for, or the largest of the last row's phase. Throws InputError naming
/// file, line, column and value.
RecordedScreen read_recorded_screen(const ScreenArguments& arguments);

}  // namespace headscope::cli
