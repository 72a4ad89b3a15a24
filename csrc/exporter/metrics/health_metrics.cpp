#include "csrc/exporter/metrics/health_metrics.h"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/circuit_metrics.h"
#include "csrc/exporter/metrics/family_builder.h"
#include "csrc/exporter/metrics/metric_catalogue.h"
#include "headscope/version.h"

namespace headscope::exporter {
namespace {

constexpr size_t kMaxUnknownErrorKinds = 32;

void add_errors(const Health& health, FamilyBuilder& builder) {
  std::map<std::string, uint64_t> counts;
  for (const ErrorKind& kind : known_error_kinds()) counts[std::string(kind.name)] = 0;
  const size_t limit = counts.size() + kMaxUnknownErrorKinds;
  for (const auto& [kind, count] : health.errors) {
    const std::string label = sanitise_label(kind);
    counts[counts.contains(label) || counts.size() < limit ? label : "other"] += count;
  }
  for (const auto& [kind, count] : counts) {
    builder.add("headscope_errors_total", {kind}, static_cast<double>(count));
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> HealthMetrics::Collect() const {
  FamilyBuilder builder;
  builder.add("headscope_build_info", {HEADSCOPE_VERSION}, 1);
  builder.add_info("headscope_run_info", facts_);
  add_deadlines(deadlines_, builder);
  add_errors(health_, builder);
  const auto add = [&](std::string_view name, uint64_t count) {
    builder.add(name, {}, static_cast<double>(count));
  };
  add("headscope_taps_total", health_.taps);
  add("headscope_taps_missing_total", health_.taps_missing);
  add("headscope_taps_skipped_total", health_.taps_skipped);
  add("headscope_snapshots_dropped_total", health_.snapshots_dropped);
  add("headscope_nonfinite_readings_total", health_.nonfinite_readings);
  add("headscope_probes_total", health_.probes);
  add("headscope_measured_steps_total", health_.measured_steps);
  add("headscope_deferred_total", health_.deferred);
  builder.add("headscope_budget_ratio", {}, health_.budget_ratio);
  builder.add("headscope_budget_used_ratio", {}, health_.budget_used_ratio);
  const auto add_phase = [&](std::string_view phase, double seconds) {
    builder.add("headscope_monitor_seconds_total", {phase}, seconds);
  };
  add_phase("tap", health_.tap_seconds);
  add_phase("probe", health_.probe_seconds);
  add_phase("ablation", health_.ablation_seconds);
  add_phase("wait", health_.wait_seconds);
  add_phase("analysis", health_.analysis_seconds);
  return builder.take();
}

}  // namespace headscope::exporter
