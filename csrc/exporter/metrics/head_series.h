#pragma once

#include <cstddef>
#include <set>

#include "csrc/exporter/metrics/family_builder.h"
#include "headscope/snapshot.h"

namespace headscope::exporter {

/// Adds the series of every head of up to two snapshots (null: none), and
/// the cap and what it leaves out.
///
/// A figure that was not measured has no series, except that a head which is not finite shows NaN.
/// When all series together are more than `max_series`, whole heads are left out, lowest best
/// selectivity first (ties: higher id first). Returns the heads left out.
std::set<HeadId> add_head_series(const Snapshot* train, const Snapshot* probe, size_t max_series,
                                 FamilyBuilder& builder);

}  // namespace headscope::exporter
