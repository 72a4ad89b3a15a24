#include "plugin/cli/compared_run.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "headscope/built_in_sinks.h"
#include "plugin/cli/csv.h"
#include "plugin/cli/run_order.h"

namespace headscope::cli {
namespace {

using Probes = std::vector<PlacedSnapshot>;

std::string six_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// "8 in each of the layers 0..5", or the count of every layer.
std::string shape_text(const std::map<int32_t, int64_t>& layers) {
  if (layers.empty()) return "none";
  const bool alike = std::all_of(layers.begin(), layers.end(), [&](const auto& layer) {
    return layer.second == layers.begin()->second;
  });
  if (alike && layers.rbegin()->first == static_cast<int32_t>(layers.size()) - 1)
    return std::to_string(layers.begin()->second) + " in each of " + std::to_string(layers.size()) +
           (layers.size() == 1 ? " layer" : " layers");
  std::string text;
  for (const auto& [layer, count] : layers)
    text += (text.empty() ? "layer " : ", layer ") + std::to_string(layer) + ": " +
            std::to_string(count);
  return text;
}

std::string pattern_text(const Snapshot& probe) {
  std::string text;
  for (const auto& name : probe.patterns) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Selectivity that each pattern needs: it holds the pattern's own threshold and what the probe's
/// query sees.
std::string threshold_text(const Snapshot& probe) {
  std::string text;
  for (const auto& circuit : probe.circuits)
    text +=
        (text.empty() ? "" : ", ") + circuit.pattern + " " + six_digits(circuit.formed_threshold);
  return text.empty() ? "none" : text;
}

int64_t samples_of(const Snapshot& probe) {
  int64_t most = 0;  // a head that did not report has none
  for (const auto& head : probe.heads) most = std::max(most, head.samples);
  return most;
}

std::vector<DefinitionItem> stated_definition(const Snapshot& probe) {
  return {
      {"patterns", pattern_text(probe), "give the runs the same ProbeOptions::patterns"},
      {"probe's context", std::to_string(probe.context),
       "give the runs the same ProbeOptions::context"},
      {"selectivity that formed needs", threshold_text(probe),
       "give the runs the same ProbeOptions::window, thresholds and CircuitRules"},
      {"selectivity controls", probe.controls, "give the runs the same ProbeOptions::controls"},
      // A probe that ended early has no spectrum.
      {"probe rows in a spectrum", std::to_string(samples_of(probe)),
       "give the runs the same ProbeOptions::examples", samples_of(probe) > 0},
      {"integral axis", probe.integral_axis, "give the runs the same Options::integral"},
  };
}

/// The first item in which two definitions differ.
std::optional<size_t> difference(const std::vector<DefinitionItem>& a,
                                 const std::vector<DefinitionItem>& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].value != b[i].value && a[i].known && b[i].known) return i;
  return std::nullopt;
}

Moment moment_of(const Snapshot& snapshot) { return {snapshot.step, snapshot.tokens}; }

/// Cuts the probes where steps go back and at the shifts.
std::vector<RunPart> cut(const Probes& probes, const std::vector<int64_t>& shifts) {
  std::vector<RunPart> parts;
  size_t stretch = 0;
  for (const auto& [probe, of_stretch] : probes) {
    const int64_t step = probe->step;
    const auto begins_here = [&](int64_t shift) {
      return parts.back().end.step < shift && step >= shift;
    };
    const bool begins = parts.empty() || of_stretch != stretch ||
                        std::any_of(shifts.begin(), shifts.end(), begins_here);
    if (begins) parts.push_back({moment_of(*probe), {}, {}});
    stretch = of_stretch;
    parts.back().end = moment_of(*probe);
    parts.back().circuits = probe->circuits;
  }
  return parts;
}

/// Screens every probe by the thresholds that stand at the end.
std::vector<ScreenedProbe> screens_of(const Probes& probes,
                                      const std::vector<CircuitReading>& circuits) {
  std::vector<ScreenedProbe> screens;
  for (const auto& [probe, stretch] : probes) {
    ScreenedProbe& screen = screens.emplace_back(ScreenedProbe{moment_of(*probe), {}});
    screen.heads.resize(circuits.size());
    for (size_t p = 0; p < circuits.size(); ++p)
      for (const HeadReading& head : probe->heads)
        if (p < head.patterns.size() &&
            head.patterns[p].selectivity >= circuits[p].recall_threshold)
          screen.heads[p].push_back(head.id);
  }
  return screens;
}

void check_shifts(const std::vector<RunPart>& parts, const std::vector<int64_t>& shifts,
                  const std::string& directory) {
  int64_t first = parts.front().begin.step, last = first;
  for (const RunPart& part : parts) {
    first = std::min(first, part.begin.step);
    last = std::max(last, part.end.step);
  }
  for (const int64_t shift : shifts)
    if (shift <= first || shift > last)
      throw InputError("--shift " + std::to_string(shift) + ": " + directory + " has probes from " +
                       std::to_string(first) + " to " + std::to_string(last) +
                       "; name a step with probes before and after it");
}

/// Name of the rules, with which the rule of every event begins.
DefinitionItem rules_of(const std::vector<Event>& events) {
  const std::string fix = "give the runs the same CircuitRules";
  if (events.empty()) return {"rules", "not known, nothing has happened", fix, false};
  const std::string& rule = events.front().rule;
  return {"rules", rule.substr(0, rule.find(':')), fix};
}

void take_news(const Snapshot& snapshot, ComparedRun& run) {
  for (const auto& event : snapshot.events)
    if (event.head_level && !event.pattern.empty() && !event.heads.empty())
      run.head_events.push_back(event);
  run.ablations.insert(run.ablations.end(), snapshot.ablations.begin(), snapshot.ablations.end());
}

}  // namespace

int64_t ComparedRun::heads() const {
  int64_t count = 0;
  for (const auto& [layer, heads] : heads_of_layer) count += heads;
  return count;
}

bool has_formed(CircuitState state) {
  return state != CircuitState::kDormant && state != CircuitState::kEmerging &&
         state != CircuitState::kLost;
}

std::vector<HeadId> formed_heads(const CircuitReading& circuit) {
  return has_formed(circuit.state) ? circuit.heads : std::vector<HeadId>{};
}

ComparedRun read_compared_run(const std::string& directory, const std::vector<int64_t>& shifts) {
  const RunHistory history = read_history(directory);
  ComparedRun run;
  run.directory = directory;
  const auto name = history.facts.find("run");
  run.name = name == history.facts.end() ? directory : name->second;
  Probes probes;
  for (const auto& placed : in_order(history)) {
    take_news(*placed.snapshot, run);
    if (is_probe(*placed.snapshot)) probes.push_back(placed);
  }
  if (probes.empty())
    throw InputError(directory + ": the history holds no probe; compare runs with a probe that " +
                     "is set (Monitor::set_probe)");
  const Snapshot& last = *probes.back().snapshot;
  run.definition = stated_definition(last);
  std::set<HeadId> heads;  // of all probes: a layer may fail to report at one
  for (const auto& [probe, stretch] : probes) {
    for (const auto& head : probe->heads) heads.insert(head.id);
    const auto definition = stated_definition(*probe);
    if (const auto other = difference(definition, run.definition))
      throw InputError(directory + ": the " + run.definition[*other].what + " changed from " +
                       definition[*other].value + " at step " + std::to_string(probe->step) +
                       " to " + run.definition[*other].value + " at step " +
                       std::to_string(last.step) + "; resume a run with the definition it had");
  }
  run.probes = std::ssize(probes);
  run.end = moment_of(last);
  run.circuits = last.circuits;
  for (const auto& head : last.heads) run.integrals[head.id] = head.pr_integral;
  for (const HeadId id : heads) ++run.heads_of_layer[id.layer];
  run.definition.push_back(
      {"heads", shape_text(run.heads_of_layer), "compare runs of one model shape"});
  run.definition.push_back(rules_of(run.head_events));
  run.parts = cut(probes, shifts);
  run.screens = screens_of(probes, run.circuits);
  check_shifts(run.parts, shifts, directory);
  run.reached = run.end;
  for (const auto& part : run.parts) {
    run.reached.step = std::max(run.reached.step, part.end.step);
    run.reached.tokens = std::fmax(run.reached.tokens, part.end.tokens);
  }
  return run;
}

void check_definition(const ComparedRun& run, const ComparedRun& first) {
  const auto other = difference(run.definition, first.definition);
  if (!other) return;
  const auto &mine = run.definition[*other], &theirs = first.definition[*other];
  throw InputError(run.directory + " is of another definition than " + first.directory + ": " +
                   mine.what + " " + mine.value + " against " + theirs.value + "; " + mine.fix);
}

}  // namespace headscope::cli
