#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstddef>
#include <utility>
#include <vector>

#include "csrc/exporter/metrics/export_state.h"

namespace headscope::exporter {

/// Head series that one scrape shows at most.
inline constexpr size_t kMaxHeadSeries = 20000;

/// Metrics of the run, heads, circuits and ablations. Heads beyond `max_head_series` are left out
/// whole, lowest best selectivity first (ties: higher id first), and counted.
class RunMetrics : public prometheus::Collectable {
 public:
  explicit RunMetrics(ExportState state, size_t max_head_series = kMaxHeadSeries)
      : state_(std::move(state)), max_head_series_(max_head_series) {}
  std::vector<prometheus::MetricFamily> Collect() const override;
  const ExportState& state() const { return state_; }

 private:
  ExportState state_;
  size_t max_head_series_;
};

}  // namespace headscope::exporter
