#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "headscope/snapshot.h"

namespace headscope::exporter {

/// What a scrape shows of the run: the newest snapshot of each source, and what adds up over
/// snapshots.
struct ExportState {
  std::shared_ptr<const Snapshot> train;     ///< newest of its source, or null
  std::shared_ptr<const Snapshot> probe;     ///< newest of its source, or null
  std::shared_ptr<const Snapshot> latest;    ///< newest of all, or null
  std::shared_ptr<const Snapshot> circuits;  ///< newest that says something of circuits, or null
  /// Latest report by pattern and metric.
  std::map<std::pair<std::string, std::string>, AblationReport> ablations;
  /// Events so far by kind, pattern and level ("circuit" or "head").
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> events;
  bool loss_told = false;  ///< a loss was told at least once: a NaN loss is news from then on
};

/// The state after one more snapshot.
ExportState state_after(const ExportState& state, std::shared_ptr<const Snapshot> snapshot);

}  // namespace headscope::exporter
