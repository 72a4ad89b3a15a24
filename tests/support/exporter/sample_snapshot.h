#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::testing {

/// Shape of a sample snapshot.
struct SampleShape {
  int layers = 2;
  int heads = 8;
  int eigenvalues = 4;
  std::vector<std::string> patterns = {"induction",   "previous-token", "duplicate-token",
                                       "first-token", "self",           "local"};
};

inline PatternReading sample_pattern(const HeadId& id, size_t pattern, int64_t step) {
  const double x = 1.0 + id.layer + 0.25 * id.head + 0.5 * static_cast<double>(pattern);
  PatternReading reading;
  for (const Figure<PatternReading>& figure : kPatternFigures)
    reading.*figure.member = x + static_cast<double>(figure.slot);
  reading.selectivity = x * (1 + static_cast<double>(step) / 100);
  reading.mass = 0.01 * x;
  reading.margin = 0.5 * x - 1;
  reading.control_mass = 0.001 * x;
  reading.margin_z = x - 2;
  reading.mass_z = x - 3;
  return reading;
}

inline HeadReading sample_head(const HeadId& id, const SampleShape& shape, Source source,
                               int64_t step) {
  HeadReading head;
  head.id = id;
  for (const Figure<HeadReading>& figure : kHeadFigures) {
    if (source == Source::kProbe || !figure.probe_only)
      head.*figure.member = 0.5 + static_cast<double>(figure.slot);
  }
  head.participation_ratio = 2 + id.layer + 0.125 * id.head;
  head.participation_ratio_centred = head.participation_ratio + 0.5;
  head.participation_ratio_quadratic = head.participation_ratio - 0.5;
  head.participation_ratio_quadratic_centred = head.participation_ratio - 0.25;
  if (source == Source::kProbe) {
    head.null_participation_ratio = 3.5;
    head.pr_integral = 0.1 * static_cast<double>(step) + id.head;
    head.specialising = id.layer == 1 && id.head == 4;
  }
  head.output_norm = 1.5;
  head.entropy = 2.25;
  head.max_logit = 7.75;
  head.sink_mass = 1.0 / 3;
  head.prefix_matching = 0.0625;
  for (int i = 0; i < shape.eigenvalues; ++i) head.eigenvalues.push_back(std::exp2(-i) / 3);
  for (size_t p = 0; p < shape.patterns.size(); ++p) {
    head.patterns.push_back(sample_pattern(id, p, step));
  }
  head.best_pattern = id.head == 4 ? "induction" : "unclassified";
  head.samples = 4096;
  return head;
}

/// One circuit per pattern; induction has formed with heads 1.4 and 1.6.
inline std::vector<CircuitReading> sample_circuits(const SampleShape& shape, int64_t step) {
  std::vector<CircuitReading> circuits;
  for (const std::string& pattern : shape.patterns) {
    CircuitReading circuit;
    circuit.pattern = pattern;
    circuit.formed_threshold = pattern == "induction" ? 50 : 30;
    circuit.best_selectivity = 12.5;
    circuits.push_back(circuit);
  }
  CircuitReading& induction = circuits.front();
  induction.state = CircuitState::kFormed;
  induction.heads = {{1, 4}, {1, 6}};
  induction.recall_threshold = 2.75;
  induction.critical_margin_z = 3.7;
  induction.emerging_step = step - 20;
  induction.margin_step = step - 20;
  induction.mass_step = step - 10;
  induction.formed_step = step;
  induction.emerging_tokens = 1e6;
  induction.formed_tokens = 2e6;
  return circuits;
}

inline Event sample_event(int64_t step) {
  Event event;
  event.step = step;
  event.tokens = 4096.0 * static_cast<double>(step);
  event.wall_time = 1.75e9;
  event.previous_probe_step = step - 10;
  event.kind = "formed";
  event.pattern = "induction";
  event.heads = {{1, 4}, {1, 6}};
  event.figures = {{"selectivity", 61.5}, {"threshold", 50.0}, {"p_value", kNaN}};
  event.rule = "selectivity >= 50 and mass >= 0.1 on 2 probes in a row";
  return event;
}

inline NullCalibration sample_calibration(int64_t step) {
  return {.step = step,
          .batch = "planted",
          .pattern = "induction",
          .null = "permuted",
          .context = 256,
          .rows = 2000,
          .draws = 100,
          .max = 482.3,
          .p99 = 2.75,
          .p95 = 1.0 / 3,
          .median = kNaN,
          .recall_threshold = 2.75,
          .heads_above = 31};
}

inline AblationReport sample_ablation(int64_t step) {
  AblationReport report;
  report.pattern = "induction";
  report.metric = "planted_loss";
  report.gate = true;
  report.step = step;
  report.heads = {{1, 4}, {1, 6}};
  report.baseline_loss = 1.5;
  report.ablated_loss = 4.25;
  report.effect = 2.75;
  report.effect_low = 2.5;
  report.effect_high = 3.0;
  report.control_effects = {0.125, -0.0625, 0.25};
  report.control_sets = {{{1, 0}, {1, 1}}, {{1, 2}, {1, 3}}, {{1, 5}, {1, 7}}};
  report.single_head_effects = {1.5, 0.5};
  report.control_mean = 0.104;
  report.difference_low = 2.25;
  report.difference_high = 3.125;
  report.label_effects = {0.125, 0.5, -0.25, 1.5};
  report.labelled_effect = 2.875;
  report.p_value = 0.2;
  report.level = 0.03;
  report.upper_bound_effect = 3.5;
  report.attainable_p = 0.0357142857142857;
  report.examples = 128;
  report.verdict = CircuitState::kVerified;
  report.reason = "effect above all 3 controls; the interval lies above 0";
  return report;
}

inline Health sample_health() {
  Health health;
  health.errors = {{"sink", 2}, {"tap", 1}};
  health.taps = 1000;
  health.taps_missing = 3;
  health.taps_skipped = 4;
  health.snapshots_dropped = 5;
  health.nonfinite_readings = 6;
  health.probes = 40;
  health.measured_steps = 150;
  health.deferred = 12;
  health.budget_ratio = 0.01;
  health.budget_used_ratio = 0.75;
  health.tap_seconds = 1.25;
  health.probe_seconds = 2.5;
  health.ablation_seconds = 0.75;
  health.wait_seconds = 0.0625;
  health.analysis_seconds = 3.5;
  return health;
}

/// A snapshot in which every kind of reading occurs: figures differ by head, pattern and step,
/// heads are sorted, and a probe snapshot carries an event and an ablation. The same arguments give
/// the same snapshot.
inline Snapshot sample_snapshot(int64_t step = 600, Source source = Source::kProbe,
                                const SampleShape& shape = {}) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.tokens = 4096.0 * static_cast<double>(step);
  snapshot.wall_time = 1.75e9 + static_cast<double>(step) / 4;
  snapshot.loss = 3.25;
  snapshot.source = source;
  snapshot.context = 256;
  snapshot.probe_interval = source == Source::kProbe ? 10 : 0;
  snapshot.dtype = "Float";
  snapshot.integral_axis = "ln_tokens";
  snapshot.controls = "50 fixed positions";
  snapshot.patterns = shape.patterns;
  for (int layer = 0; layer < shape.layers; ++layer) {
    for (int head = 0; head < shape.heads; ++head) {
      snapshot.heads.push_back(sample_head({layer, head}, shape, source, step));
    }
  }
  snapshot.health = sample_health();
  if (source == Source::kProbe) {
    snapshot.circuits = sample_circuits(shape, step);
    snapshot.events = {sample_event(step)};
    snapshot.ablations = {sample_ablation(step)};
    snapshot.calibrations = {sample_calibration(step)};
    snapshot.sink_any = 0.125;
    snapshot.repeat_gap = 1.75;
    snapshot.sink_class = 0.0625;
  }
  return snapshot;
}

inline std::shared_ptr<const Snapshot> shared(Snapshot snapshot) {
  return std::make_shared<const Snapshot>(std::move(snapshot));
}

}  // namespace headscope::testing
