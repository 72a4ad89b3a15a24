#pragma once

#include <memory>
#include <vector>

#include "headscope/built_in_sinks.h"

namespace headscope::cli {

/// A snapshot of a run, and which stretch it belongs to: from 0, one more where steps go back.
struct PlacedSnapshot {
  std::shared_ptr<const Snapshot> snapshot;
  size_t stretch = 0;
};

/// Whether a snapshot holds a probe's readings; one of news alone has no heads.
bool is_probe(const Snapshot& snapshot);

/// The snapshots in the order in which they were taken. A history is in order of step, in which a
/// second data phase that counts steps anew lies between the first one's; without wall times the
/// two cannot be told apart, and all is one stretch.
std::vector<PlacedSnapshot> in_order(const RunHistory& history);

}  // namespace headscope::cli
