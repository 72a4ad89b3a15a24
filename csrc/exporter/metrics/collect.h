#pragma once

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// Head series that one scrape shows at most.
inline constexpr size_t kMaxHeadSeries = 20000;
/// Circuits, and patterns of the figures over all heads, that one scrape shows at most.
inline constexpr size_t kMaxCircuits = 256;

/// What a scrape shows of the run: the newest snapshot of each source, and what adds up over
/// snapshots.
struct ExportState {
  std::shared_ptr<const Snapshot> train;     ///< newest of its source, or null
  std::shared_ptr<const Snapshot> probe;     ///< newest of its source, or null
  std::shared_ptr<const Snapshot> latest;    ///< newest of all, or null
  std::shared_ptr<const Snapshot> circuits;  ///< newest that says something of circuits, or null
  /// Latest report by pattern and metric.
  std::map<std::pair<std::string, std::string>, AblationReport> ablations;
  /// Events so far by kind, pattern and level ("circuit" or "head").
  std::map<std::tuple<std::string, std::string, std::string>, uint64_t> events;
  bool loss_told = false;  ///< a loss was told at least once: a NaN loss is news from then on
};

/// The state after one more snapshot.
ExportState state_after(const ExportState& state, std::shared_ptr<const Snapshot> snapshot);

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

/// Build and run info, the user's deadlines, and headscope's own cost and errors.
class HealthMetrics : public prometheus::Collectable {
 public:
  HealthMetrics(Health health, RunFacts facts, DeadlineTokens deadlines = {})
      : health_(std::move(health)), facts_(std::move(facts)), deadlines_(std::move(deadlines)) {}
  std::vector<prometheus::MetricFamily> Collect() const override;

 private:
  Health health_;
  RunFacts facts_;
  DeadlineTokens deadlines_;
};

/// Prometheus text format 0.0.4 of counters and gauges: byte for byte what prometheus-cpp writes,
/// at less than half the cost.
std::string serialise(const prometheus::Collectable& metrics);

}  // namespace headscope::exporter
