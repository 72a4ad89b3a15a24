#pragma once

#include <memory>

#include "csrc/exporter/history/sqlite.h"
#include "headscope/snapshot.h"

namespace headscope::exporter {

/// The columns that read_snapshot() takes, in its order.
inline constexpr char kSnapshotColumns[] =
    "id, segment, step, source, context, probe_interval, dtype, integral_axis, controls, patterns, "
    "circuits, health, figures";

/// The snapshot of a row, with its events and ablations. Throws std::runtime_error that names the
/// file and the row when it is broken.
std::shared_ptr<Snapshot> read_snapshot(Database& database, const Statement& row);

}  // namespace headscope::exporter
