#include "csrc/exporter/metrics/circuit_metrics.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/field_series.h"

namespace headscope::exporter {
namespace {

constexpr CircuitState kVerdicts[] = {CircuitState::kVerified, CircuitState::kNotCausal,
                                      CircuitState::kUnspecific, CircuitState::kInconclusive};

void add_circuit(const CircuitReading& circuit, const std::string& pattern,
                 const std::set<HeadId>& heads_left_out, FamilyBuilder& builder) {
  for (int i = 0; i < kCircuitStates; ++i) {
    const auto state = static_cast<CircuitState>(i);
    builder.add("headscope_circuit_state", {pattern, to_string(state)}, circuit.state == state);
  }
  builder.add("headscope_circuit_heads", {pattern}, static_cast<double>(circuit.heads.size()));
  for (const HeadId& id : std::set<HeadId>(circuit.heads.begin(), circuit.heads.end())) {
    if (heads_left_out.contains(id)) continue;
    builder.add("headscope_circuit_member",
                {pattern, std::to_string(id.layer), std::to_string(id.head)}, 1);
  }
  add_fields(circuit, {pattern}, builder);
}

std::span<const CircuitReading> shown_circuits(const Snapshot& snapshot) {
  return std::span(snapshot.circuits).first(std::min(snapshot.circuits.size(), kMaxCircuits));
}

void add_ablation(const AblationReport& report, const std::string& pattern,
                  const std::string& metric, FamilyBuilder& builder) {
  for (const CircuitState verdict : kVerdicts) {
    builder.add("headscope_ablation_verdict", {pattern, metric, to_string(verdict)},
                report.verdict == verdict);
  }
  add_fields(report, {pattern, metric}, builder);
}

}  // namespace

void add_circuits(const Snapshot& snapshot, const std::set<HeadId>& heads_left_out,
                  FamilyBuilder& builder) {
  std::vector<std::string> names;
  for (const CircuitReading& circuit : shown_circuits(snapshot)) names.push_back(circuit.pattern);
  const std::vector<std::string> patterns = sanitise_labels(names);
  for (size_t i = 0; i < patterns.size(); ++i) {
    add_circuit(snapshot.circuits[i], patterns[i], heads_left_out, builder);
  }
}

void add_events(const ExportState& state, FamilyBuilder& builder) {
  // Keys are cleaned before they are added up: two that become equal are one series.
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> counts;
  if (state.circuits) {
    for (const CircuitReading& circuit : shown_circuits(*state.circuits)) {
      // From 0 on, so that increase() sees the first one.
      for (int i = static_cast<int>(CircuitState::kEmerging); i < kCircuitStates; ++i) {
        counts[{to_string(static_cast<CircuitState>(i)), sanitise_label(circuit.pattern),
                "circuit"}] = 0;
      }
    }
  }
  for (const auto& [key, count] : state.events) {
    const auto& [kind, pattern, level] = key;
    counts[{sanitise_label(kind), sanitise_label(pattern), level}] += count;
  }
  for (const auto& [key, count] : counts) {
    const auto& [kind, pattern, level] = key;
    builder.add("headscope_events_total", {kind, pattern, level}, static_cast<double>(count));
  }
}

void add_ablations(const ExportState& state, FamilyBuilder& builder) {
  std::set<std::pair<std::string, std::string>> taken;
  for (const auto& [key, report] : state.ablations) {
    const std::string pattern = sanitise_label(key.first);
    const std::string metric = sanitise_label(key.second);
    if (taken.emplace(pattern, metric).second) add_ablation(report, pattern, metric, builder);
  }
}

void add_deadlines(const DeadlineTokens& deadlines, FamilyBuilder& builder) {
  std::map<std::string, double> shown;  // two names that become equal are one series
  for (const auto& [pattern, tokens] : deadlines) {
    if (shown.size() < kMaxCircuits) shown.emplace(sanitise_label(pattern), tokens);
  }
  for (const auto& [pattern, tokens] : shown) {
    builder.add_measured("headscope_circuit_deadline_tokens", {pattern}, tokens);
  }
}

}  // namespace headscope::exporter
