#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "plugin/examples/attention_only_lm/report.h"
#include "plugin/examples/text/loss_hash.h"

namespace headscope::demo {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }
json step_number(int64_t step) { return step >= 0 ? json(step) : json(nullptr); }

json numbers(const std::vector<double>& values) {
  json list = json::array();
  for (const double value : values) list.push_back(number(value));
  return list;
}

json head_ids(const std::vector<HeadId>& heads) {
  json list = json::array();
  for (const HeadId& id : heads) list.push_back({id.layer, id.head});
  return list;
}

json ablation_json(const AblationReport& report) {
  return {{"pattern", report.pattern},
          {"metric", report.metric},
          {"gate", report.gate},
          {"step", report.step},
          {"heads", head_ids(report.heads)},
          {"baseline_loss", number(report.baseline_loss)},
          {"ablated_loss", number(report.ablated_loss)},
          {"effect", number(report.effect)},
          {"control_effects", numbers(report.control_effects)},
          {"control_mean", number(report.control_mean)},
          {"single_head_effects", numbers(report.single_head_effects)},
          {"difference_low", number(report.difference_low)},
          {"difference_high", number(report.difference_high)},
          {"upper_bound_effect", number(report.upper_bound_effect)},
          {"attainable_p", number(report.attainable_p)},
          {"examples", report.examples},
          {"verdict", to_string(report.verdict)},
          {"reason", report.reason}};
}

/// The ablation that the circuit's verdict rests on: its last gate report.
const AblationReport* last_gate(const RunReport& run, const std::string& pattern) {
  const auto found = std::find_if(
      run.ablations.rbegin(), run.ablations.rend(),
      [&](const AblationReport& report) { return report.gate && report.pattern == pattern; });
  return found == run.ablations.rend() ? nullptr : &*found;
}

json circuit_json(const RunReport& run, const CircuitReading& circuit) {
  const AblationReport* gate = last_gate(run, circuit.pattern);
  return {{"pattern", circuit.pattern},
          {"state", to_string(circuit.state)},
          {"heads", head_ids(circuit.heads)},
          {"formed_threshold", number(circuit.formed_threshold)},
          {"best_selectivity", number(circuit.best_selectivity)},
          {"margin_step", step_number(circuit.margin_step)},
          {"mass_step", step_number(circuit.mass_step)},
          {"emerging_step", step_number(circuit.emerging_step)},
          {"formed_step", step_number(circuit.formed_step)},
          {"verified_step", step_number(circuit.verified_step)},
          {"emerging_tokens", number(circuit.emerging_tokens)},
          {"formed_tokens", number(circuit.formed_tokens)},
          {"verified_tokens", number(circuit.verified_tokens)},
          {"controls", gate ? json(gate->control_effects.size()) : json(nullptr)},
          {"effect", gate ? number(gate->effect) : json(nullptr)},
          {"control_mean", gate ? number(gate->control_mean) : json(nullptr)}};
}

json health_json(const Health& health) {
  return {{"errors", health.errors},
          {"taps", health.taps},
          {"taps_missing", health.taps_missing},
          {"taps_skipped", health.taps_skipped},
          {"snapshots_dropped", health.snapshots_dropped},
          {"nonfinite_readings", health.nonfinite_readings},
          {"probes", health.probes},
          {"measured_steps", health.measured_steps},
          {"deferred", health.deferred},
          {"tap_seconds", health.tap_seconds},
          {"probe_seconds", health.probe_seconds},
          {"ablation_seconds", health.ablation_seconds},
          {"wait_seconds", health.wait_seconds},
          {"analysis_seconds", health.analysis_seconds}};
}

json repeat_json(const RepeatScore& score) {
  return {{"loss", number(score.loss)}, {"accuracy", number(score.accuracy)}};
}

json summary_json(const DemoOptions& options, const DemoOutcome& outcome) {
  const TrainingResult& training = outcome.training;
  json circuits = json::array();
  for (const CircuitReading& circuit : outcome.run.circuits)
    circuits.push_back(circuit_json(outcome.run, circuit));
  json ablations = json::array();
  for (const AblationReport& report : outcome.run.ablations)
    ablations.push_back(ablation_json(report));
  json resumed_at = json::array();
  for (size_t leg = 1; leg < training.legs.size(); ++leg)
    resumed_at.push_back(training.legs[leg].first_step);
  return {
      {"circuits", circuits},
      {"ablations", ablations},
      {"final_loss", number(training.final_loss)},
      {"validation_loss", number(training.validation_loss)},
      {"repeated_random", repeat_json(training.repeated_random)},
      {"repeated_text", repeat_json(training.repeated_text)},
      {"loss_hash", hexadecimal(training.loss_hash)},
      {"steps", training.steps},
      {"interrupted", training.interrupted},
      {"resumed_at", resumed_at},
      {"resumable", outcome.resumable},
      {"seconds", number(training.seconds)},
      {"step_seconds", number(training.step_seconds)},
      {"monitor_seconds", number(outcome.monitor_seconds)},
      {"monitor_seconds_ratio", number(outcome.monitor_seconds / training.seconds)},
      {"health", health_json(outcome.run.health)},
      {"layers", options.layers},
      {"layers_seen", outcome.run.layers},
      {"heads", options.heads},
      {"seed", options.seed},
      {"threads", options.threads},
      {"monitor", to_string(options.monitor)},
      {"run_dir", options.monitor == MonitorMode::kOff ? json(nullptr) : json(options.run_dir)}};
}

}  // namespace

void write_summary(const DemoOptions& options, const DemoOutcome& outcome) {
  std::ofstream file(options.summary);
  file << summary_json(options, outcome).dump(2, ' ', false, json::error_handler_t::replace)
       << "\n";
  file.close();
  if (!file)
    throw std::runtime_error("--summary '" + options.summary +
                             "' cannot be written: " + std::strerror(errno));
}

}  // namespace headscope::demo
