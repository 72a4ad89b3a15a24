#include <memory>
#include <string>
#include <utility>

#include "csrc/exporter/metrics/health_metrics.h"
#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "headscope/built_in_sinks.h"

namespace headscope {

std::string render_metrics(const Snapshot* snapshot, const Health& health, const RunFacts& facts) {
  exporter::ExportState state;
  if (snapshot != nullptr) {
    // Shares nothing: the caller's snapshot outlives the call.
    const std::shared_ptr<const Snapshot> borrowed(std::shared_ptr<const Snapshot>(), snapshot);
    state = exporter::state_after(state, borrowed);
  }
  return exporter::serialise(exporter::HealthMetrics(health, facts)) +
         exporter::serialise(exporter::RunMetrics(std::move(state)));
}

std::string render_metrics(const RunHistory& run) {
  exporter::ExportState state;
  for (const auto& snapshot : run.snapshots) state = exporter::state_after(state, snapshot);
  const Health health = state.latest ? state.latest->health : Health{};
  return exporter::serialise(exporter::HealthMetrics(health, run.facts)) +
         exporter::serialise(exporter::RunMetrics(std::move(state)));
}

}  // namespace headscope
