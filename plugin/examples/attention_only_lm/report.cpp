#include "plugin/examples/attention_only_lm/report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace headscope::demo {
namespace {

/// Appends what printf would print.
__attribute__((format(printf, 2, 3))) void append(std::string& text, const char* format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

std::string head_list(const std::vector<HeadId>& heads) {
  std::string text;
  for (const HeadId& id : heads)
    append(text, "%s%d.%d", text.empty() ? "" : " ", id.layer, id.head);
  return text.empty() ? "-" : text;
}

bool contains(const std::vector<HeadId>& heads, const HeadId& id) {
  return std::find(heads.begin(), heads.end(), id) != heads.end();
}

/// Seconds of training at a moment of wall time; pauses before a resumption do not count.
double training_seconds_at(const TrainingResult& training, double wall_time) {
  double seconds = kNaN;
  for (const Leg& leg : training.legs)
    if (std::isnan(seconds) || leg.start_time <= wall_time)
      seconds = leg.seconds_before + wall_time - leg.start_time;
  return seconds;
}

/// Seconds of training until the pattern-level event that took the circuit into `kind` at `step`.
double seconds_at(const DemoOutcome& outcome, const std::string& pattern, std::string_view kind,
                  int64_t step) {
  double seconds = kNaN;
  for (const Event& event : outcome.run.events)
    if (!event.head_level && event.pattern == pattern && event.kind == kind && event.step >= step) {
      seconds = training_seconds_at(outcome.training, event.wall_time);
      break;
    }
  return seconds;
}

std::string clock_text(double seconds) {
  if (!std::isfinite(seconds)) return "-";
  const auto whole = static_cast<long long>(seconds);
  char text[32];
  std::snprintf(text, sizeof text, "%lld:%02lld", whole / 60, whole % 60);
  return text;
}

void append_stage(std::string& text, const DemoOutcome& outcome, const CircuitReading& circuit,
                  const char* kind, int64_t step, double tokens) {
  if (step < 0) return;
  append(text, "    %-10s step %6lld  tokens %9.0f  wall %6s\n", kind, static_cast<long long>(step),
         tokens, clock_text(seconds_at(outcome, circuit.pattern, kind, step)).c_str());
}

void append_lead(std::string& text, const char* precursor, int64_t step, int64_t formed) {
  if (step < 0) {
    append(text, "      %-32s never\n", precursor);
    return;
  }
  const int64_t lead = formed - step;
  append(text, "      %-32s step %6lld, %lld steps %s (%.0f %% of the way)\n", precursor,
         static_cast<long long>(step), static_cast<long long>(std::abs(lead)),
         lead >= 0 ? "ahead" : "behind",
         100.0 * static_cast<double>(std::abs(lead)) / static_cast<double>(formed));
}

/// First step at which one of the circuit's heads was called specialising, or -1.
int64_t specialising_step(const RunReport& run, const CircuitReading& circuit) {
  for (const Event& event : run.events)
    if (event.kind == "specialising" && event.heads.size() == 1 &&
        contains(circuit.heads, event.heads.front()))
      return event.step;
  return -1;
}

void append_circuit(std::string& text, const DemoOutcome& outcome, const CircuitReading& circuit) {
  append(text, "  %s: %s, heads %s\n", circuit.pattern.c_str(), to_string(circuit.state),
         head_list(circuit.heads).c_str());
  append_stage(text, outcome, circuit, "emerging", circuit.emerging_step, circuit.emerging_tokens);
  append_stage(text, outcome, circuit, "formed", circuit.formed_step, circuit.formed_tokens);
  append_stage(text, outcome, circuit, "verified", circuit.verified_step, circuit.verified_tokens);
  if (circuit.formed_step <= 0) return;
  append(text, "    precursors, against `formed`:\n");
  append_lead(text, "match margin beat its null", circuit.margin_step, circuit.formed_step);
  append_lead(text, "attention mass beat its null", circuit.mass_step, circuit.formed_step);
  append_lead(text, "PR excess of one of its heads", specialising_step(outcome.run, circuit),
              circuit.formed_step);
}

void append_circuits(std::string& text, const DemoOutcome& outcome) {
  text += "\nCircuits\n";
  std::string dormant;
  for (const CircuitReading& circuit : outcome.run.circuits) {
    if (circuit.state == CircuitState::kDormant)
      dormant += (dormant.empty() ? "" : ", ") + circuit.pattern;
    else
      append_circuit(text, outcome, circuit);
  }
  if (!dormant.empty()) append(text, "  never called: %s\n", dormant.c_str());
}

const char* metric_words(const std::string& metric) {
  return metric == "planted_loss" ? "planted pair" : "repeated held-out text";
}

void append_ablation(std::string& text, const AblationReport& report) {
  append(text, "    %-23s %6.2f -> %5.2f  %+6.2f", metric_words(report.metric),
         report.baseline_loss, report.ablated_loss, report.effect);
  const auto& controls = report.control_effects;
  if (controls.empty()) {
    text += "   no control set exists";
  } else {
    const auto [low, high] = std::minmax_element(controls.begin(), controls.end());
    append(text, "   %zu %s: %+.2f to %+.2f", controls.size(),
           controls.size() == 1 ? "control set" : "control sets", *low, *high);
  }
  append(text, "   whole layers: %+.2f\n", report.upper_bound_effect);
}

/// The last ablation of each pattern: the report that its verdict rests on, then the ones beside
/// it.
void append_ablations(std::string& text, const RunReport& run) {
  if (run.ablations.empty()) return;
  text +=
      "\nAblations, the last of each circuit (nats a token on held-out rows: before -> heads "
      "zeroed, "
      "change)\n";
  for (const CircuitReading& circuit : run.circuits) {
    const auto last = std::find_if(run.ablations.rbegin(), run.ablations.rend(),
                                   [&](const AblationReport& report) {
                                     return report.gate && report.pattern == circuit.pattern;
                                   });
    if (last == run.ablations.rend()) continue;
    append(text, "  %s, heads %s, step %lld: ", circuit.pattern.c_str(),
           head_list(last->heads).c_str(), static_cast<long long>(last->step));
    text += last->reason + "\n";
    append_ablation(text, *last);
    for (const AblationReport& report : run.ablations)
      if (!report.gate && report.pattern == circuit.pattern && report.step == last->step)
        append_ablation(text, report);
  }
}

/// How to go on from here.
std::string resumption(const DemoOptions& options, const DemoOutcome& outcome) {
  if (!outcome.resumable)
    return outcome.training.interrupted ? "No checkpoint holds these steps.\n" : "";
  if (outcome.training.interrupted) return "To go on: " + options.resume_command + "\n";
  return "To go on beyond: the same command with --run-dir " + options.run_dir +
         ", --resume and more --steps\n";
}

}  // namespace

double monitor_seconds(const Health& health) {
  return health.tap_seconds + health.probe_seconds + health.ablation_seconds + health.wait_seconds;
}

std::string closing_report(const DemoOptions& options, const DemoOutcome& outcome) {
  const TrainingResult& training = outcome.training;
  std::string text;
  append(text, "\n%s after %lld steps, %s: loss %.3f, validation %.3f\n",
         training.interrupted ? "Interrupted" : "Done", static_cast<long long>(training.steps),
         clock_text(training.seconds).c_str(), training.final_loss, training.validation_loss);
  for (size_t leg = 1; leg < training.legs.size(); ++leg)
    append(text, "Resumed at step %lld\n", static_cast<long long>(training.legs[leg].first_step));
  append(text,
         "Second half of repeated rows: random tokens %.2f nats, %.0f %% right; held-out text %.2f "
         "nats, %.0f %% right\n",
         training.repeated_random.loss, 100 * training.repeated_random.accuracy,
         training.repeated_text.loss, 100 * training.repeated_text.accuracy);
  if (options.monitor != MonitorMode::kOn) return text + resumption(options, outcome);
  append_circuits(text, outcome);
  append_ablations(text, outcome.run);
  append(text, "\nMonitor: %llu probes%s, %.1f s of the training thread (%.1f %% of the run)\n",
         static_cast<unsigned long long>(outcome.run.health.probes),
         training.legs.size() > 1 ? " since it was resumed" : "", outcome.monitor_seconds,
         100 * outcome.monitor_seconds / training.seconds);
  for (const auto& [kind, count] : outcome.run.health.errors)
    if (count > 0)
      append(text, "  errors of kind %s: %llu\n", kind.c_str(),
             static_cast<unsigned long long>(count));
  append(text, "Run history: %s\n", options.run_dir.c_str());
  return text + resumption(options, outcome);
}

}  // namespace headscope::demo
