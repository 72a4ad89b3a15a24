#include "csrc/exporter/metrics/health_metrics.h"

#include <cstdint>
#include <map>
#include <string>

#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/circuit_metrics.h"
#include "csrc/exporter/metrics/family_builder.h"
#include "csrc/exporter/metrics/field_series.h"
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
  add_fields(health_, {}, builder);
  return builder.take();
}

}  // namespace headscope::exporter
