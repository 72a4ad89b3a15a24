#include "plugin/cli/compared_run.h"

#include <algorithm>
#include <cmath>
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
      {"probe rows in a spectrum",
       samples_of(probe) > 0 ? std::to_string(samples_of(probe)) : "not known",
       "give the runs the same ProbeOptions::examples", samples_of(probe) > 0},
      {"integral axis", probe.integral_axis, "give the runs the same Options::integral"},
  };
}

std::string in_words(const DefinitionItem& mine, const DefinitionItem& theirs,
                     const std::string& between) {
  return mine.what + " " + mine.value + between + theirs.value + "; " + mine.fix;
}

/// visit(item, the other's): those that both know and that differ.
template <typename Visit>
void for_each_difference(const std::vector<DefinitionItem>& definition,
                         const std::vector<DefinitionItem>& others, const Visit& visit) {
  for (const DefinitionItem& item : definition)
    for (const DefinitionItem& other : others)
      if (other.what == item.what && other.value != item.value && item.known && other.known)
        visit(item, other);
}

Moment moment_of(const Snapshot& snapshot) { return {snapshot.step, snapshot.tokens}; }

/// Cuts the run where steps go back and at the shifts. Verdicts come in snapshots without a probe.
std::vector<RunPart> cut(const std::vector<PlacedSnapshot>& snapshots,
                         const std::vector<int64_t>& shifts) {
  std::vector<RunPart> parts;
  size_t stretch = 0;
  for (const auto& [snapshot, of_stretch] : snapshots) {
    if (!is_probe(*snapshot)) {
      const bool says = !parts.empty() && of_stretch == stretch && !snapshot->circuits.empty();
      if (says) parts.back().circuits = snapshot->circuits;
      continue;
    }
    const int64_t step = snapshot->step;
    const auto begins_here = [&](int64_t shift) {
      return parts.back().end.step < shift && step >= shift;
    };
    const bool begins = parts.empty() || of_stretch != stretch ||
                        std::any_of(shifts.begin(), shifts.end(), begins_here);
    if (begins) parts.push_back({moment_of(*snapshot), {}, {}});
    stretch = of_stretch;
    parts.back().end = moment_of(*snapshot);
    parts.back().circuits = snapshot->circuits;
  }
  return parts;
}

/// Screens every probe by the thresholds that stand at the end.
std::vector<ScreenedProbe> screens_of(const Probes& probes,
                                      const std::vector<CircuitReading>& circuits) {
  std::vector<ScreenedProbe> screens;
  for (const auto& [probe, stretch] : probes) {
    ScreenedProbe& screen = screens.emplace_back(ScreenedProbe{moment_of(*probe), {}});
    for (size_t p = 0; p < circuits.size(); ++p) {
      std::vector<HeadId>& found = screen.heads[circuits[p].pattern];
      for (const HeadReading& head : probe->heads)
        if (p < head.patterns.size() &&
            head.patterns[p].selectivity >= circuits[p].recall_threshold)
          found.push_back(head.id);
    }
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

/// A rule without the figures that a null test had at that probe.
std::string without_figures(std::string rule) {
  const std::string critical = " critical z ";
  for (size_t at = rule.find(critical); at != std::string::npos; at = rule.find(critical, at)) {
    at += critical.size() - 1;
    rule.erase(at, std::min(rule.find(')', at), rule.size() - 1) + 1 - at);
  }
  return rule;
}

/// The rules as the events state them: their name, and by which thresholds heads came and went. A
/// run in which nothing happened does not tell them.
std::vector<DefinitionItem> rules_of(const ComparedRun& run) {
  const std::string fix = "give the runs the same CircuitRules";
  std::vector<DefinitionItem> items;
  items.push_back({"rules", "not known, nothing has happened", fix, false});
  if (!run.head_events.empty()) {
    const std::string& rule = run.head_events.front().rule;
    items.front() = {"rules", rule.substr(0, rule.find(':')), fix};
  }
  std::map<std::string, std::string> rules;  // of each pattern and kind, the last
  for (const Event& event : run.head_events)
    if (event.kind != "converted")
      rules[event.pattern + " is " + event.kind + " by"] = without_figures(event.rule);
  for (const auto& [what, rule] : rules) items.push_back({what, rule, fix});
  std::map<std::string, std::string> metrics;
  for (const AblationReport& report : run.ablations)
    if (report.gate) metrics[report.pattern + " is judged by"] = report.metric;
  for (const auto& [what, metric] : metrics)
    items.push_back({what, metric, "give the runs the same Pattern::metric"});
  return items;
}

const CircuitReading& circuit_of(const std::vector<CircuitReading>& circuits,
                                 const std::string& pattern) {
  const auto found = std::find_if(circuits.begin(), circuits.end(),
                                  [&](const auto& circuit) { return circuit.pattern == pattern; });
  if (found == circuits.end()) throw InputError("no circuit of the pattern '" + pattern + "'");
  return *found;
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
  const auto placed = in_order(history);
  for (const auto& snapshot : placed) {
    take_news(*snapshot.snapshot, run);
    if (is_probe(*snapshot.snapshot)) probes.push_back(snapshot);
  }
  if (probes.empty())
    throw InputError(directory + ": the history holds no probe; compare runs with a probe that " +
                     "is set (Monitor::set_probe)");
  const Snapshot& last = *probes.back().snapshot;
  run.definition = stated_definition(last);
  std::set<HeadId> heads;  // of all probes: a layer may fail to report at one
  std::set<std::string> changed;
  for (auto at = probes.rbegin(); at != probes.rend(); ++at) {
    const Snapshot& probe = *at->snapshot;
    for (const auto& head : probe.heads) {
      heads.insert(head.id);
      double& integral = run.integrals.try_emplace(head.id, kNaN).first->second;
      if (!std::isfinite(integral)) integral = head.pr_integral;
    }
    const auto definition = stated_definition(probe);
    for (size_t i = 0; i < definition.size(); ++i)
      if (!run.definition[i].known) run.definition[i] = definition[i];
    for_each_difference(definition, run.definition, [&](const auto& item, const auto& later) {
      if (changed.insert(item.what).second)
        run.changes.push_back("the " + item.what + " changed from " + item.value + " at step " +
                              std::to_string(probe.step) + " to " + later.value +
                              "; resume a run with the definition it had");
    });
  }
  for (const auto& [probe, stretch] : probes) run.probes.push_back(moment_of(*probe));
  run.end = run.probes.back();
  for (const HeadId id : heads) ++run.heads_of_layer[id.layer];
  run.definition.push_back(
      {"heads", shape_text(run.heads_of_layer), "compare runs of one model shape"});
  for (DefinitionItem& item : rules_of(run)) run.definition.push_back(std::move(item));
  run.parts = cut(placed, shifts);
  run.circuits = run.parts.back().circuits;
  run.screens = screens_of(probes, run.circuits);
  check_shifts(run.parts, shifts, directory);
  return run;
}

const CircuitReading& ComparedRun::circuit(const std::string& pattern) const {
  return circuit_of(circuits, pattern);
}
const CircuitReading& RunPart::circuit(const std::string& pattern) const {
  return circuit_of(circuits, pattern);
}

std::vector<std::string> differences(const ComparedRun& run, const ComparedRun& other) {
  std::vector<std::string> all;
  for_each_difference(run.definition, other.definition, [&](const auto& mine, const auto& theirs) {
    all.push_back(run.directory + " is of another definition than " + other.directory + ": " +
                  in_words(mine, theirs, " against "));
  });
  return all;
}

}  // namespace headscope::cli
