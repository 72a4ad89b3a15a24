#include "csrc/exporter/metrics/export_state.h"

#include <cmath>

namespace headscope::exporter {
namespace {

constexpr size_t kMaxEventSeries = 512;
constexpr size_t kMaxAblations = 64;

}  // namespace

ExportState state_after(const ExportState& state, std::shared_ptr<const Snapshot> snapshot) {
  ExportState next = state;
  // Without heads it carries events only, and the last readings stand.
  if (!snapshot->heads.empty()) {
    (snapshot->source == Source::kTrain ? next.train : next.probe) = snapshot;
  }
  if (!snapshot->circuits.empty()) next.circuits = snapshot;
  next.loss_told = next.loss_told || !std::isnan(snapshot->loss);
  for (const Event& event : snapshot->events) {
    const std::tuple key(event.kind, event.pattern,
                         std::string(event.head_level ? "head" : "circuit"));
    if (next.events.contains(key) || next.events.size() < kMaxEventSeries) ++next.events[key];
  }
  for (const AblationReport& report : snapshot->ablations) {
    const std::pair key(report.pattern, report.metric);
    if (next.ablations.contains(key) || next.ablations.size() < kMaxAblations) {
      next.ablations[key] = report;
    }
  }
  next.latest = std::move(snapshot);
  return next;
}

}  // namespace headscope::exporter
