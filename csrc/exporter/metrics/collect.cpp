#include "csrc/exporter/metrics/collect.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <span>
#include <string>

#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/family_builder.h"
#include "csrc/exporter/metrics/head_aggregates.h"
#include "csrc/exporter/metrics/head_series.h"
#include "csrc/exporter/metrics/metric_catalogue.h"
#include "headscope/version.h"

namespace headscope::exporter {
namespace {

constexpr size_t kMaxUnknownErrorKinds = 32;
constexpr size_t kMaxEventSeries = 512;
constexpr size_t kMaxAblations = 64;
constexpr CircuitState kVerdicts[] = {CircuitState::kVerified, CircuitState::kNotCausal,
                                      CircuitState::kInconclusive};

void add_step(FamilyBuilder& builder, std::string_view metric, std::string_view pattern,
              int64_t step) {
  if (step >= 0) builder.add(metric, {pattern}, static_cast<double>(step));
}

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
  if (fewest != snapshot.heads.end()) {
    builder.add("headscope_spectrum_samples", {source}, static_cast<double>(fewest->samples));
  }
  add_head_aggregates(snapshot, builder);
}

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
  builder.add_measured("headscope_circuit_formed_threshold_ratio", {pattern},
                       circuit.formed_threshold);
  builder.add_measured("headscope_circuit_critical_margin_z", {pattern}, circuit.critical_margin_z);
  builder.add_measured("headscope_circuit_best_selectivity_ratio", {pattern},
                       circuit.best_selectivity);
  add_step(builder, "headscope_circuit_emerging_step", pattern, circuit.emerging_step);
  add_step(builder, "headscope_circuit_margin_step", pattern, circuit.margin_step);
  add_step(builder, "headscope_circuit_mass_step", pattern, circuit.mass_step);
  add_step(builder, "headscope_circuit_formed_step", pattern, circuit.formed_step);
  add_step(builder, "headscope_circuit_verified_step", pattern, circuit.verified_step);
  builder.add_measured("headscope_circuit_emerging_tokens", {pattern}, circuit.emerging_tokens);
  builder.add_measured("headscope_circuit_formed_tokens", {pattern}, circuit.formed_tokens);
  builder.add_measured("headscope_circuit_verified_tokens", {pattern}, circuit.verified_tokens);
}

std::span<const CircuitReading> shown_circuits(const Snapshot& snapshot) {
  return std::span(snapshot.circuits).first(std::min(snapshot.circuits.size(), kMaxCircuits));
}

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

void add_ablation(const AblationReport& report, const std::string& pattern,
                  const std::string& metric, FamilyBuilder& builder) {
  for (const CircuitState verdict : kVerdicts) {
    builder.add("headscope_ablation_verdict", {pattern, metric, to_string(verdict)},
                report.verdict == verdict);
  }
  const auto add = [&](std::string_view name, double value) {
    builder.add_measured(name, {pattern, metric}, value);
  };
  add("headscope_ablation_gate", report.gate);
  add("headscope_ablation_step", static_cast<double>(report.step));
  add("headscope_ablation_heads", static_cast<double>(report.heads.size()));
  add("headscope_ablation_examples", static_cast<double>(report.examples));
  add("headscope_ablation_controls", static_cast<double>(report.control_effects.size()));
  add("headscope_ablation_baseline_loss_nats", report.baseline_loss);
  add("headscope_ablation_ablated_loss_nats", report.ablated_loss);
  add("headscope_ablation_effect_nats", report.effect);
  add("headscope_ablation_control_mean_nats", report.control_mean);
  add("headscope_ablation_difference_low_nats", report.difference_low);
  add("headscope_ablation_difference_high_nats", report.difference_high);
  add("headscope_ablation_upper_bound_effect_nats", report.upper_bound_effect);
  add("headscope_ablation_attainable_p_ratio", report.attainable_p);
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

void append_labels(std::string& text, const std::vector<prometheus::ClientMetric::Label>& labels) {
  if (labels.empty()) return;
  char before = '{';
  for (const auto& label : labels) {
    text += before;
    text.append(label.name).append("=\"");
    for (const char c : label.value) {
      if (c == '"' || c == '\\') text += '\\';
      if (c == '\n') {
        text += "\\n";
      } else {
        text += c;
      }
    }
    text += '"';
    before = ',';
  }
  text += '}';
}

/// 16 digits, as prometheus-cpp writes them: exposable() relies on it.
void append_value(std::string& text, double value) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? "Nan" : value > 0 ? "+Inf" : "-Inf";
    return;
  }
  char buffer[32];
  text.append(buffer, std::to_chars(buffer, std::end(buffer), value, std::chars_format::general,
                                    std::numeric_limits<double>::digits10 + 1)
                          .ptr);
}

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

std::string serialise(const prometheus::Collectable& metrics) {
  std::string text;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    const bool counter = family.type == prometheus::MetricType::Counter;
    text.append("# HELP ").append(family.name).append(" ").append(family.help);
    text.append("\n# TYPE ").append(family.name).append(counter ? " counter\n" : " gauge\n");
    for (const prometheus::ClientMetric& series : family.metric) {
      text += family.name;
      append_labels(text, series.label);
      text += ' ';
      append_value(text, counter ? series.counter.value : series.gauge.value);
      text += '\n';
    }
  }
  return text;
}

}  // namespace headscope::exporter

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
