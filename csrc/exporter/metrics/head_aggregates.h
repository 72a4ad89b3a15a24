#pragma once

#include "csrc/exporter/metrics/family_builder.h"
#include "headscope/snapshot.h"

namespace headscope::exporter {

/// A head whose effective rank is below this has collapsed to nearly one direction.
inline constexpr double kCollapsedParticipationRatio = 1.1;

/// Adds the figures over all heads of a snapshot, those beyond the cap of a scrape too. Heads that
/// are not finite are counted and enter nothing else; a figure that no head has, has no series.
/// Cost: one pass over heads x patterns and a selection for each median.
void add_head_aggregates(const Snapshot& snapshot, FamilyBuilder& builder);

}  // namespace headscope::exporter
