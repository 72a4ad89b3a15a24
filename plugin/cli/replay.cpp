#include <algorithm>
#include <cstdint>

#include "headscope/circuits.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/input.h"
#include "plugin/cli/json_text.h"
#include "plugin/cli/recorded_run.h"

namespace headscope::cli {
namespace {

constexpr int64_t kPublishedContext = 256;

CircuitRules rules_named(const std::string& name) {
  if (name == "headscope") return {};
  if (name == "reference") return CircuitRules::reference();
  throw InputError("unknown rules '" + name + "'; choose headscope or reference");
}

/// The standard pattern of that name ('_' and '-' are one), or one with the threshold of the
/// unnamed classes.
Pattern pattern_named(const std::string& name) {
  std::string hyphened = name;
  std::replace(hyphened.begin(), hyphened.end(), '_', '-');
  for (auto& pattern : standard_patterns()) {
    if (pattern.name != hyphened) continue;
    pattern.name = name;
    return pattern;
  }
  Pattern other;
  other.name = name;
  other.targets = [](std::span<const int64_t>, int64_t) { return std::vector<int64_t>{}; };
  return other;
}

/// The patterns of a run with the thresholds that they have, and the context that these scale with.
struct Thresholds {
  std::vector<Pattern> patterns;
  int64_t context = kPublishedContext;
  std::string source;  ///< in words
};

Thresholds thresholds_of(const RecordedRun& run, const ReplayArguments& arguments,
                         const CircuitRules& rules) {
  Thresholds result;
  for (const auto& name : run.patterns) result.patterns.push_back(pattern_named(name));
  if (arguments.context) {
    result.context = *arguments.context;
    result.source = "--context";
  } else if (run.context) {
    result.context = *run.context;
    result.source = "column context";
  } else {
    result.source = "none given";
  }
  if (run.formed_thresholds.empty() || !rules.scale_to_context) return result;
  result.context = apply_recorded(run.formed_thresholds, result.patterns, result.context);
  result.source = "column formed_threshold";
  return result;
}

std::vector<HeadReading> readings_of(const RecordedRun& run, const RecordedProbe& probe) {
  std::vector<HeadReading> heads(run.heads.size());
  for (size_t h = 0; h < heads.size(); ++h) {
    heads[h].id = run.heads[h];
    heads[h].patterns.resize(run.patterns.size());
  }
  auto head = heads.begin();  // both are in the order of heads
  for (const RecordedReading& reading : probe.readings) {
    while (head->id != reading.head) ++head;
    PatternReading& figures = head->patterns[reading.pattern];
    figures.selectivity = reading.selectivity;
    figures.mass = reading.mass;
    figures.margin = reading.margin;
    head->participation_ratio = reading.participation_ratio;
  }
  return heads;
}

ordered_json definition_of(const RecordedRun& run, const CircuitTracker& tracker,
                           const Thresholds& stated) {
  const CircuitRules& rules = tracker.rules();
  const auto& patterns = stated.patterns;
  ordered_json thresholds = ordered_json::object();
  for (size_t p = 0; p < patterns.size(); ++p)
    thresholds[patterns[p].name] = {{"at_256", patterns[p].formed_at_256},
                                    {"at_context", tracker.formed_threshold(p)}};
  return {{"rules", rules.name},
          {"context", stated.context},
          {"context_from", stated.source},
          {"formed_selectivity", thresholds},
          {"mass_floor", rules.mass_floor},
          {"previous_token_by_class", rules.previous_token_by_class},
          {"emerging_selectivity", rules.emerging_selectivity},
          {"emerging_test", "none: a recorded trajectory has no null draws"},
          {"probes_in_a_row", rules.probes_in_a_row},
          {"leave_fraction", rules.leave_fraction},
          {"rows", run.rows},
          {"readings_skipped", run.skipped},
          {"readings_superseded", run.superseded},
          {"stretches", run.stretches.size()}};
}

}  // namespace

std::string replay(const ReplayArguments& arguments) {
  CircuitRules rules = rules_named(arguments.rules);
  const RecordedRun run = read_recorded_run(arguments);
  if (run.patterns.empty())
    throw InputError(arguments.file + ": no row with a pattern and a selectivity");
  const Thresholds stated = thresholds_of(run, arguments, rules);
  CircuitTracker tracker(stated.patterns, stated.context, std::move(rules));

  ordered_json answer;
  answer["definition"] = definition_of(run, tracker, stated);
  ordered_json head_events = ordered_json::array(), circuit_events = ordered_json::array(),
               final_states = ordered_json::array();
  for (const auto& stretch : run.stretches) {
    bool begins = &stretch != &run.stretches.front();
    for (const auto& [step, probe] : stretch.probes) {
      const auto heads = readings_of(run, probe);
      const auto events = tracker.update({.step = step,
                                          .tokens = probe.tokens,
                                          .heads = heads,
                                          .nulls = {},
                                          .new_stretch = begins});
      begins = false;
      for (const auto& event : events) {
        ordered_json object = to_json(event);
        if (!stretch.phase.empty()) object["phase"] = stretch.phase;
        (event.head_level ? head_events : circuit_events).push_back(std::move(object));
      }
    }
  }
  for (const auto& reading : tracker.readings()) final_states.push_back(to_json(reading));
  answer["events"] = std::move(head_events);
  answer["circuits"] = std::move(circuit_events);
  answer["final"] = std::move(final_states);
  return to_text(answer);
}

}  // namespace headscope::cli
