#include "csrc/exporter/metrics/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "csrc/exporter/metrics/circuit_metrics.h"
#include "csrc/exporter/metrics/family_builder.h"
#include "csrc/exporter/metrics/head_aggregates.h"
#include "csrc/exporter/metrics/head_series.h"

namespace headscope::exporter {
namespace {

void add_run(const ExportState& state, FamilyBuilder& builder) {
  const Snapshot& latest = *state.latest;
  builder.add("headscope_step", {}, static_cast<double>(latest.step));
  builder.add_measured("headscope_tokens", {}, latest.tokens);
  builder.add("headscope_segment", {}, static_cast<double>(latest.segment));
  builder.add_measured("headscope_last_snapshot_timestamp_seconds", {}, latest.wall_time);
  // A probe may come without a loss of its own; a training step without one has lost it.
  const bool from_train = std::isnan(latest.loss) && latest.source == Source::kProbe && state.train;
  if (state.loss_told) {
    builder.add("headscope_loss", {}, from_train ? state.train->loss : latest.loss);
  }
  if (state.probe) {
    builder.add("headscope_probe_interval_steps", {},
                static_cast<double>(state.probe->probe_interval));
  }
}

void add_source(const Snapshot& snapshot, FamilyBuilder& builder) {
  const std::string source = to_string(snapshot.source);
  builder.add("headscope_measurement_info",
              {source, snapshot.dtype, snapshot.integral_axis, snapshot.controls}, 1);
  builder.add("headscope_source_step", {source}, static_cast<double>(snapshot.step));
  builder.add("headscope_context_tokens", {source}, static_cast<double>(snapshot.context));
  builder.add_measured("headscope_sink_any_ratio", {source}, snapshot.sink_any);
  builder.add_measured("headscope_repeat_gap_nats", {source}, snapshot.repeat_gap);
  builder.add_measured("headscope_sink_class_ratio", {source}, snapshot.sink_class);
  const auto fewest = std::min_element(
      snapshot.heads.begin(), snapshot.heads.end(),
      [](const HeadReading& a, const HeadReading& b) { return a.samples < b.samples; });
  // A probe that ended early has no spectrum.
  if (fewest != snapshot.heads.end() && fewest->samples > 0) {
    builder.add("headscope_spectrum_samples", {source}, static_cast<double>(fewest->samples));
  }
  add_head_aggregates(snapshot, builder);
}

}  // namespace

std::vector<prometheus::MetricFamily> RunMetrics::Collect() const {
  if (!state_.latest) return {};
  FamilyBuilder builder;
  add_run(state_, builder);
  for (const auto& snapshot : {state_.train, state_.probe}) {
    if (snapshot) add_source(*snapshot, builder);
  }
  const std::set<HeadId> heads_left_out =
      add_head_series(state_.train.get(), state_.probe.get(), max_head_series_, builder);
  if (state_.circuits) add_circuits(*state_.circuits, heads_left_out, builder);
  add_events(state_, builder);
  add_ablations(state_, builder);
  return builder.take();
}

}  // namespace headscope::exporter
