#pragma once

#include <cstddef>
#include <set>

#include "csrc/exporter/metrics/export_state.h"
#include "csrc/exporter/metrics/family_builder.h"
#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// Circuits, and patterns of the figures over all heads, that one scrape shows at most.
inline constexpr size_t kMaxCircuits = 256;

/// Adds the circuits of a snapshot; of their heads not those in `heads_left_out`.
void add_circuits(const Snapshot& snapshot, const std::set<HeadId>& heads_left_out,
                  FamilyBuilder& builder);

/// Adds what adds up over snapshots: events, and the latest ablation of each pattern and metric.
void add_events(const ExportState& state, FamilyBuilder& builder);
void add_ablations(const ExportState& state, FamilyBuilder& builder);

/// Adds the tokens by which the user expects circuits.
void add_deadlines(const DeadlineTokens& deadlines, FamilyBuilder& builder);

}  // namespace headscope::exporter
