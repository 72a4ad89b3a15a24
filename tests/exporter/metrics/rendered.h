#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::exporter {

/// What a scrape shows of the run after these snapshots, oldest first.
inline std::string rendered(const std::vector<Snapshot>& snapshots, size_t cap = kMaxHeadSeries) {
  ExportState state;
  for (const Snapshot& snapshot : snapshots) state = state_after(state, testing::shared(snapshot));
  return serialise(RunMetrics(state, cap));
}

}  // namespace headscope::exporter
