#include "plugin/cli/compare.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>

#include "headscope/comparison.h"
#include "headscope/configuration_prior.h"
#include "plugin/cli/bands.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/compared_run.h"
#include "plugin/cli/csv.h"

namespace headscope::cli {
namespace {

constexpr double kFractions[] = {.01, .02, .05, .1, .2, .5, 1};
// The reference's reading of a Jaccard over a shift of data.
constexpr double kStable = .8, kRewritten = .3;

using Runs = std::vector<ComparedRun>;

ordered_json moment_to_json(const Moment& moment) {
  if (moment.step < 0) return nullptr;
  return {{"step", moment.step}, {"tokens", moment.tokens}};
}

ordered_json runs_to_json(const Runs& runs) {
  ordered_json list = ordered_json::array();
  for (size_t r = 0; r < runs.size(); ++r)
    list.push_back({{"run", r + 1},
                    {"name", runs[r].name},
                    {"directory", runs[r].directory},
                    {"heads", runs[r].heads()},
                    {"probes", runs[r].probes.size()},
                    {"end", moment_to_json(runs[r].end)},
                    {"parts", runs[r].parts.size()}});
  return list;
}

/// visit(first run, second run), numbers from 0.
template <typename Visit>
void for_each_pair(const Runs& runs, const Visit& visit) {
  for (size_t a = 0; a < runs.size(); ++a)
    for (size_t b = a + 1; b < runs.size(); ++b) visit(a, b);
}

// Of one pattern.

ordered_json circuits_to_json(const Runs& runs, const std::string& pattern) {
  ordered_json list = ordered_json::array();
  for (size_t r = 0; r < runs.size(); ++r) {
    const CircuitReading& circuit = runs[r].circuit(pattern);
    const auto heads = formed_heads(circuit);
    ordered_json layers = ordered_json::array();
    for (const auto& [layer, of_model] : runs[r].heads_of_layer) {
      const auto count =
          std::count_if(heads.begin(), heads.end(), [&](HeadId id) { return id.layer == layer; });
      if (count > 0) layers.push_back({{"layer", layer}, {"size", count}, {"of_heads", of_model}});
    }
    list.push_back(
        {{"run", r + 1},
         {"state", to_string(circuit.state)},
         {"heads", heads_to_json(heads)},
         {"size", heads.size()},
         {"of_heads", runs[r].heads()},
         {"share", static_cast<double>(heads.size()) / static_cast<double>(runs[r].heads())},
         {"layers", layers},
         {"emerging", moment_to_json(moment_of(circuit, Milestone::kEmerging))},
         {"formed", moment_to_json(moment_of(circuit, Milestone::kFormed))},
         {"verified", moment_to_json({circuit.verified_step, circuit.verified_tokens})},
         {"margin_step",
          circuit.margin_step < 0 ? ordered_json() : ordered_json(circuit.margin_step)},
         {"mass_step", circuit.mass_step < 0 ? ordered_json() : ordered_json(circuit.mass_step)}});
  }
  return list;
}

ordered_json overlap_to_json(const Runs& runs, const std::string& pattern) {
  ordered_json pairs = ordered_json::array();
  for_each_pair(runs, [&](size_t a, size_t b) {
    const auto first = formed_heads(runs[a].circuit(pattern));
    const auto second = formed_heads(runs[b].circuit(pattern));
    pairs.push_back({{"runs", {a + 1, b + 1}},
                     {"jaccard", jaccard(first, second)},
                     {"by_chance",
                      runs[a].heads_of_layer == runs[b].heads_of_layer
                          ? expected_jaccard(std::ssize(first), std::ssize(second), runs[a].heads())
                          : kNaN},
                     {"both_empty", first.empty() && second.empty()}});
  });
  return pairs;
}

/// Heads of the circuits of several runs, those of most runs first.
ordered_json shared_to_json(const Runs& runs, const std::string& pattern) {
  std::map<HeadId, std::vector<size_t>> in_runs;
  for (size_t r = 0; r < runs.size(); ++r)
    for (const HeadId id : formed_heads(runs[r].circuit(pattern))) in_runs[id].push_back(r + 1);
  std::vector<std::pair<HeadId, std::vector<size_t>>> shared;
  for (const auto& entry : in_runs)
    if (entry.second.size() > 1) shared.push_back(entry);
  std::stable_sort(shared.begin(), shared.end(),
                   [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  ordered_json list = ordered_json::array();
  for (const auto& [id, numbers] : shared)
    list.push_back({{"head", {id.layer, id.head}}, {"runs", numbers}});
  return list;
}

std::vector<HeadId> without(const std::vector<HeadId>& heads, const std::vector<HeadId>& others) {
  const std::set<HeadId> known(others.begin(), others.end());
  std::vector<HeadId> rest;
  for (const HeadId id : heads)
    if (!known.contains(id)) rest.push_back(id);
  return rest;
}

const char* reading_of(double overlap) {
  if (overlap >= kStable) return "stable";
  return overlap < kRewritten ? "rewritten" : "changed";
}

/// Each run's circuit before and after its data shifted.
ordered_json shifts_to_json(const Runs& runs, const std::string& pattern) {
  ordered_json list = ordered_json::array();
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto& parts = runs[r].parts;
    for (size_t p = 1; p < parts.size(); ++p) {
      const auto before = formed_heads(parts[p - 1].circuit(pattern));
      const auto after = formed_heads(parts[p].circuit(pattern));
      const double overlap = jaccard(before, after);
      list.push_back(
          {{"run", r + 1},
           {"before", moment_to_json(parts[p - 1].end)},
           {"shift", moment_to_json(parts[p].begin)},
           {"after", moment_to_json(parts[p].end)},
           {"heads_before", heads_to_json(before)},
           {"heads_after", heads_to_json(after)},
           {"lost", heads_to_json(without(before, after))},
           {"gained", heads_to_json(without(after, before))},
           {"jaccard", overlap},
           {"reading", before.empty() && after.empty() ? "no circuit" : reading_of(overlap)}});
    }
  }
  return list;
}

/// Whether the axis goes on over all parts of the run.
bool goes_on(const ComparedRun& run, Axis axis) {
  for (size_t p = 1; p < run.parts.size(); ++p)
    if (!(place_of(run.parts[p].begin, axis) >= place_of(run.parts[p - 1].end, axis))) return false;
  return true;
}

/// The last thing that was said of each head of a pattern up to a place of the run.
std::map<HeadId, std::string> heads_by(const ComparedRun& run, const std::string& pattern,
                                       double place, Axis axis) {
  std::map<HeadId, std::string> states;
  for (const Event& event : run.head_events)
    if (event.pattern == pattern && place_of({event.step, event.tokens}, axis) <= place)
      states[event.heads.front()] = state_after(event);
  return states;
}

/// The heads that a screen of the last probe up to `place` finds; null: no screen was calibrated.
const std::vector<HeadId>* screened_by(const ComparedRun& run, const std::string& pattern,
                                       double place, Axis axis) {
  if (std::isnan(run.circuit(pattern).recall_threshold)) return nullptr;
  const std::vector<HeadId>* heads = nullptr;
  for (const ScreenedProbe& screen : run.screens)
    if (place_of(screen.at, axis) <= place) heads = &screen.heads.at(pattern);
  return heads;
}

/// At which share of the run what share of the final heads could be told.
ordered_json recall_to_json(const Runs& runs, const std::string& pattern, Axis axis) {
  ordered_json list = ordered_json::array();
  for (size_t r = 0; r < runs.size(); ++r) {
    const auto final_heads = formed_heads(runs[r].circuit(pattern));
    if (final_heads.empty() || !goes_on(runs[r], axis)) continue;
    const double end = place_of(runs[r].end, axis);
    ordered_json points = ordered_json::array();
    for (const double fraction : kFractions) {
      const auto states = heads_by(runs[r], pattern, fraction * end, axis);
      int64_t emerging = 0, formed = 0;
      for (const HeadId id : final_heads) {
        const auto found = states.find(id);
        if (found == states.end()) continue;
        formed += found->second == "formed";
        emerging += found->second == "formed" || found->second == "emerging";
      }
      const auto share = [&](int64_t count) {
        return static_cast<double>(count) / static_cast<double>(final_heads.size());
      };
      points.push_back({{"fraction", fraction},
                        {to_string(axis), fraction * end},
                        {"emerging_or_formed", share(emerging)},
                        {"formed", share(formed)},
                        {"screened", nullptr}});
      const auto* screened = screened_by(runs[r], pattern, fraction * end, axis);
      if (screened == nullptr) continue;
      const auto found = [&](HeadId id) {
        return std::find(screened->begin(), screened->end(), id) != screened->end();
      };
      points.back()["screened"] =
          share(std::count_if(final_heads.begin(), final_heads.end(), found));
    }
    list.push_back({{"run", r + 1}, {"heads", final_heads.size()}, {"recall", points}});
  }
  return list;
}

/// The last report of each metric and run.
ordered_json ablations_to_json(const Runs& runs, const std::string& pattern) {
  ordered_json list = ordered_json::array();
  for (size_t r = 0; r < runs.size(); ++r) {
    std::map<std::string, std::pair<const AblationReport*, int64_t>> last;
    for (const auto& report : runs[r].ablations) {
      if (report.pattern != pattern) continue;
      auto& entry = last[report.metric];
      entry = {&report, entry.second + 1};
    }
    for (const auto& [metric, entry] : last) {
      ordered_json object = {{"run", r + 1}, {"reports", entry.second}};
      object.update(to_json(*entry.first, Lists::kLengths));
      list.push_back(std::move(object));
    }
  }
  return list;
}

/// A date with the probe before it.
Censored censored(const ComparedRun& run, const Moment& date, Axis axis) {
  Censored place = {kNaN, place_of(date, axis)};
  if (std::isnan(place.by)) return place;
  place.after = 0;
  for (size_t p = 1; p < run.probes.size(); ++p) {
    const double before = place_of(run.probes[p - 1], axis);
    if (run.probes[p].step == date.step && place_of(run.probes[p], axis) == place.by &&
        before < place.by)
      place.after = std::max(place.after, before);
  }
  return place;
}

/// The farthest probe but the last: what the last one showed first would not be confirmed yet.
double not_confirmed_by(const ComparedRun& run, Axis axis) {
  double farthest = kNaN;
  for (size_t p = 0; p + 1 < run.probes.size(); ++p)
    farthest = std::fmax(farthest, place_of(run.probes[p], axis));
  return farthest;
}

ordered_json bands_to_json(const Runs& runs, const Runs& references, const std::string& pattern,
                           Axis axis, double factor_of_one) {
  ordered_json list = ordered_json::array();
  for (const Milestone milestone : {Milestone::kEmerging, Milestone::kFormed}) {
    std::vector<Censored> dates;
    for (const auto& run : references)
      dates.push_back(censored(run, moment_of(run.circuit(pattern), milestone), axis));
    const Band band = band_of(dates, factor_of_one);
    ordered_json standings = ordered_json::array();
    for (size_t r = 0; r < runs.size(); ++r) {
      const Censored date = censored(runs[r], moment_of(runs[r].circuit(pattern), milestone), axis);
      const double not_by = not_confirmed_by(runs[r], axis);
      const Standing standing = standing_of(band, date, not_by);
      standings.push_back({{"run", r + 1},
                           {"standing", standing.verdict},
                           {to_string(axis), date.by},
                           {"after", date.after},
                           {"not_by", std::isnan(date.by) ? not_by : kNaN},
                           {"ratio", standing.ratio}});
    }
    ordered_json object = {{"milestone", to_string(milestone)},
                           {"axis", to_string(axis)},
                           {"references", band.references},
                           {"dated", band.dated},
                           {"low", band.low},
                           {"high", band.high},
                           {"factor", band.factor},
                           {"runs", standings}};
    if (band.dated == 1)
      object["note"] =
          "a band of one run has no width: its interval is made wider by factor to both sides";
    list.push_back(std::move(object));
  }
  return list;
}

ordered_json prior_to_json(const Runs& runs, const CompareArguments& arguments) {
  const double tokens = configuration_prior_tokens(*arguments.batch, *arguments.context);
  ordered_json object = {{"name", "prior from the configuration only: no measurement of any head"},
                         {"formula", "tokens = 10^5.7 sqrt(batch context)"},
                         {"batch", *arguments.batch},
                         {"context", *arguments.context},
                         {"pattern", "induction"},
                         {"tokens", tokens},
                         {"runs", ordered_json::array()}};
  for (size_t r = 0; r < runs.size(); ++r)
    for (const auto& circuit : runs[r].circuits)
      if (circuit.pattern == "induction")
        object["runs"].push_back({{"run", r + 1},
                                  {"formed_tokens", circuit.formed_tokens},
                                  {"ratio", circuit.formed_tokens / tokens},
                                  {"end_tokens", runs[r].end.tokens}});
  return object;
}

ordered_json integrals_to_json(const Runs& runs) {
  ordered_json pairs = ordered_json::array();
  for_each_pair(runs, [&](size_t a, size_t b) {
    std::vector<double> first, second;
    int64_t used = 0;
    for (const auto& [id, integral] : runs[a].integrals) {
      const auto other = runs[b].integrals.find(id);
      if (other == runs[b].integrals.end()) continue;
      first.push_back(integral);
      second.push_back(other->second);
      used += std::isfinite(integral) && std::isfinite(other->second);
    }
    pairs.push_back(
        {{"runs", {a + 1, b + 1}}, {"spearman", spearman(first, second)}, {"heads", used}});
  });
  return pairs;
}

Axis axis_of(const Runs& runs, const Runs& references) {
  for (const Runs* some : {&runs, &references})
    for (const auto& run : *some)
      if (!std::isfinite(run.end.tokens)) return Axis::kSteps;
  return Axis::kTokens;
}

Runs read_runs(const std::vector<std::string>& directories, const std::vector<int64_t>& shifts) {
  Runs runs;
  for (const auto& directory : directories) runs.push_back(read_compared_run(directory, shifts));
  return runs;
}

/// In which points any two of the runs, or one within itself, are of different definitions.
std::vector<std::string> differences_of(const Runs& runs, const Runs& references) {
  std::vector<const ComparedRun*> all;
  for (const Runs* some : {&runs, &references})
    for (const auto& run : *some) all.push_back(&run);
  std::vector<std::string> found;
  for (size_t b = 0; b < all.size(); ++b) {
    for (const auto& change : all[b]->changes) found.push_back(all[b]->directory + ": " + change);
    for (size_t a = 0; a < b; ++a)
      for (auto& difference : differences(*all[b], *all[a])) found.push_back(std::move(difference));
  }
  return found;
}

/// Patterns that all runs have, in the order of the first.
std::vector<std::string> common_patterns(const Runs& runs, const Runs& references) {
  std::vector<std::string> common;
  for (const auto& circuit : runs.front().circuits) common.push_back(circuit.pattern);
  const auto has = [](const std::vector<CircuitReading>& circuits, const std::string& pattern) {
    return std::any_of(circuits.begin(), circuits.end(),
                       [&](const auto& circuit) { return circuit.pattern == pattern; });
  };
  for (const Runs* some : {&runs, &references})
    for (const auto& run : *some)
      for (const auto& part : run.parts)
        std::erase_if(common, [&](const auto& pattern) { return !has(part.circuits, pattern); });
  return common;
}

void check(const CompareArguments& arguments) {
  if (arguments.runs.empty()) throw InputError("no run directory; name one or more");
  std::set<std::string> seen;
  for (const auto* directories : {&arguments.runs, &arguments.references})
    for (const auto& directory : *directories) {
      std::error_code ignored;
      const auto path = std::filesystem::weakly_canonical(directory, ignored).string();
      if (!seen.insert(path.empty() ? directory : path).second)
        throw InputError(directory + " is given twice; name each run once");
    }
  if (arguments.batch.has_value() != arguments.context.has_value())
    throw InputError(std::string("--") + (arguments.batch ? "batch" : "context") + " is given " +
                     "without --" + (arguments.batch ? "context" : "batch") +
                     "; the prior needs both");
  if (!(arguments.band_factor > 1) || !std::isfinite(arguments.band_factor))
    throw InputError("--band-factor is " + std::to_string(arguments.band_factor) +
                     "; give one above 1");
}

}  // namespace

std::string compare(const CompareArguments& arguments) {
  check(arguments);
  const Runs runs = read_runs(arguments.runs, arguments.shifts);
  const Runs references = read_runs(arguments.references, {});
  const auto differ = differences_of(runs, references);
  if (!differ.empty() && !arguments.force)
    throw InputError(differ.front() +
                     (differ.size() > 1
                          ? "; and " + std::to_string(differ.size() - 1) + " more such differences"
                          : "") +
                     "; or go on with --force");
  const auto patterns = common_patterns(runs, references);
  const Axis axis = axis_of(runs, references);

  ordered_json answer;
  for (const auto& item : runs.front().definition) answer["definition"][item.what] = item.value;
  answer["differences"] = differ;
  answer["axis"] = to_string(axis);
  answer["runs"] = runs_to_json(runs);
  answer["references"] = runs_to_json(references);
  answer["integrals"] = integrals_to_json(runs);
  answer["patterns"] = ordered_json::array();
  for (const std::string& name : patterns) {
    ordered_json pattern = {{"pattern", name},
                            {"circuits", circuits_to_json(runs, name)},
                            {"overlap", overlap_to_json(runs, name)},
                            {"shared", shared_to_json(runs, name)},
                            {"shifts", shifts_to_json(runs, name)},
                            {"recall", recall_to_json(runs, name, axis)},
                            {"ablations", ablations_to_json(runs, name)}};
    if (!references.empty())
      pattern["bands"] = bands_to_json(runs, references, name, axis, arguments.band_factor);
    answer["patterns"].push_back(std::move(pattern));
  }
  if (arguments.batch) answer["prior"] = prior_to_json(runs, arguments);
  return arguments.json ? to_text(answer) : comparison_text(answer);
}

}  // namespace headscope::cli
