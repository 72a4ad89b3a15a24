#include "headscope/screen.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "plugin/cli/commands.h"
#include "plugin/cli/input.h"
#include "plugin/cli/json_text.h"
#include "plugin/cli/screen_input.h"

namespace headscope::cli {
namespace {

constexpr int64_t kScreenContext = 256;  // of files that do not say
constexpr double kAbove[] = {2, 10, 30, 50, 100};
constexpr const char* kAboveNames[] = {"2", "10", "30", "50", "100"};
constexpr const char* kUnclassified = "unclassified";

ScreenRules screen_rules_named(const std::string& name) {
  if (name == "headscope") return {};
  if (name == "reference") return ScreenRules::reference();
  throw InputError("unknown rules '" + name + "'; choose headscope or reference");
}

/// A batch with what was found in it.
struct ScreenAnswer {
  const ScreenedBatch& batch;
  Screen screen;
};

std::string class_name(const RecordedScreen& recorded, std::optional<size_t> pattern) {
  return pattern ? recorded.patterns[*pattern].name : kUnclassified;
}

ordered_json class_counts_to_json(const RecordedScreen& recorded,
                                  const std::vector<int64_t>& counts) {
  ordered_json object = ordered_json::object();
  for (size_t p = 0; p < counts.size(); ++p)
    object[p < recorded.patterns.size() ? recorded.patterns[p].name : kUnclassified] = counts[p];
  return object;
}

/// Heads of a pattern at or above what noise reached in the run's own screen; nullopt: there is
/// none.
std::optional<std::vector<HeadId>> above_recall(const RecordedScreen& recorded,
                                                const std::vector<HeadReading>& heads,
                                                size_t pattern) {
  const auto threshold = recorded.recall_thresholds.find(recorded.patterns[pattern].name);
  if (threshold == recorded.recall_thresholds.end()) return std::nullopt;
  return circuit_members(heads, pattern, threshold->second, 0);
}

ordered_json definition_to_json(const RecordedScreen& recorded, const Screen& screen) {
  ordered_json thresholds = ordered_json::object();
  for (size_t p = 0; p < recorded.patterns.size(); ++p)
    thresholds[recorded.patterns[p].name] = {{"at_256", recorded.patterns[p].formed_at_256},
                                             {"at_context", screen.circuits[p].threshold}};
  return {{"rules", screen.rules.name},
          {"context", screen.context},
          {"step", recorded.step ? ordered_json(*recorded.step) : ordered_json()},
          {"phase", recorded.phase.empty() ? ordered_json() : ordered_json(recorded.phase)},
          {"class_selectivity", screen.class_threshold},
          {"formed_selectivity", thresholds},
          {"recall_selectivity", recorded.recall_thresholds},
          {"mass_floor", screen.rules.mass_floor},
          {"previous_token_by_class", screen.rules.previous_token_by_class},
          {"sink_mass_floor", screen.rules.sink_mass_floor},
          {"ranking", "pr_integral"},
          {"rows", recorded.rows},
          {"readings_skipped", recorded.skipped},
          {"readings_superseded", recorded.superseded},
          {"readings_of_other_steps", recorded.other_steps},
          {"readings_of_other_phases", recorded.other_phases},
          {"rows_of_other_sources", recorded.other_sources}};
}

ordered_json top_to_json(const RecordedScreen& recorded, const Screen& screen) {
  if (screen.top_k == 0) return nullptr;
  ordered_json precision = ordered_json::array();
  for (const auto& at : screen.precision)
    precision.push_back(
        {{"k", at.k}, {"specialised", at.specialised}, {"precision", at.precision}});
  return {{"k", screen.top_k},
          {"classes", class_counts_to_json(recorded, screen.top_classes)},
          {"precision", std::move(precision)}};
}

ordered_json sinks_to_json(const Screen& screen) {
  if (!screen.sinks) return nullptr;
  ordered_json layers = ordered_json::array();
  for (const auto& [layer, heads] : screen.sinks->any_by_layer)
    layers.push_back({{"layer", layer}, {"any", heads}});
  return {{"any", screen.sinks->any},
          {"by_class", screen.sinks->by_class},
          {"by_mass", screen.sinks->by_mass},
          {"mass_measured", screen.sinks->mass_measured},
          {"layers", std::move(layers)}};
}

ordered_json screened_heads_to_json(const RecordedScreen& recorded, const ScreenAnswer& answer) {
  std::vector<int64_t> ranks(answer.batch.heads.size());
  for (size_t i = 0; i < answer.screen.order.size(); ++i)
    ranks[answer.screen.order[i]] = static_cast<int64_t>(i) + 1;
  ordered_json list = ordered_json::array();
  for (size_t h = 0; h < ranks.size(); ++h) {
    const HeadReading& head = answer.batch.heads[h];
    list.push_back({{"layer", head.id.layer},
                    {"head", head.id.head},
                    {"class", class_name(recorded, answer.screen.head_class[h])},
                    {"pr_integral", head.pr_integral},
                    {"rank", ranks[h] > 0 ? ordered_json(ranks[h]) : ordered_json()}});
  }
  return list;
}

ordered_json answer_to_json(const RecordedScreen& recorded, const ScreenAnswer& answer) {
  const Screen& screen = answer.screen;
  ordered_json circuits = ordered_json::object(), above = ordered_json::object();
  ordered_json recalled = ordered_json::object();
  for (size_t p = 0; p < recorded.patterns.size(); ++p) {
    ordered_json members = ordered_json::array();
    for (const HeadId id : screen.circuits[p].members) members.push_back({id.layer, id.head});
    circuits[recorded.patterns[p].name] = std::move(members);
    if (const auto heads = above_recall(recorded, answer.batch.heads, p))
      recalled[recorded.patterns[p].name] = heads_to_json(*heads);
    const auto counts = heads_above(answer.batch.heads, p, kAbove);
    for (size_t i = 0; i < counts.size(); ++i)
      above[recorded.patterns[p].name][kAboveNames[i]] = counts[i];
  }
  return {{"batch", answer.batch.name.empty() ? ordered_json() : ordered_json(answer.batch.name)},
          {"circuits", std::move(circuits)},
          {"classes", class_counts_to_json(recorded, screen.classes)},
          {"top", top_to_json(recorded, screen)},
          {"specialised_top", screen.specialised_top},
          {"specialised", screen.specialised},
          {"sinks", sinks_to_json(screen)},
          {"heads_above", std::move(above)},
          {"above_recall", std::move(recalled)},
          {"heads", screened_heads_to_json(recorded, answer)}};
}

ordered_json stability_to_json(const std::optional<ClassStability>& stability) {
  if (!stability) return nullptr;
  return {{"batches", stability->labelings},
          {"unanimous", stability->unanimous},
          {"pairwise", stability->pairwise}};
}

__attribute__((format(printf, 2, 3))) void append_format(std::string& text, const char* format,
                                                         ...) {
  char line[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  text += line;
}

std::string share_text(double share) {
  if (std::isnan(share)) return "not known";
  std::string text;
  append_format(text, "%.1f %%", 100 * share);
  return text;
}

void append_table(std::string& text, const RecordedScreen& recorded, const ScreenAnswer& answer) {
  const Screen& screen = answer.screen;
  const std::string top = "first " + std::to_string(screen.top_k);
  append_format(text, "\n%-18s %9s %9s  circuit (selectivity at least)\n", "class", "all heads",
                screen.top_k > 0 ? top.c_str() : "");
  for (size_t p = 0; p <= recorded.patterns.size(); ++p) {
    const bool named = p < recorded.patterns.size();
    text += class_name(recorded, named ? std::optional(p) : std::nullopt);
    const size_t width = class_name(recorded, named ? std::optional(p) : std::nullopt).size();
    text.append(width < 18 ? 18 - width : 0, ' ');
    append_format(text, " %9lld", static_cast<long long>(screen.classes[p]));
    append_format(text, " %9s",
                  screen.top_k > 0 ? std::to_string(screen.top_classes[p]).c_str() : "");
    if (named) {
      const auto& circuit = screen.circuits[p];
      const bool by_class =
          screen.rules.previous_token_by_class && recorded.patterns[p].name == "previous-token";
      append_format(text, "  %zu (%.4g%s)", circuit.members.size(), circuit.threshold,
                    by_class ? ", of this class" : "");
      constexpr size_t kShown = 10;
      for (size_t i = 0; i < std::min(kShown, circuit.members.size()); ++i)
        append_format(text, "%s%d.%d", i == 0 ? ": " : " ", circuit.members[i].layer,
                      circuit.members[i].head);
      if (circuit.members.size() > kShown)
        text += " and " + std::to_string(circuit.members.size() - kShown) + " more";
    }
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  }
}

void append_above_recall(std::string& text, const RecordedScreen& recorded,
                         const ScreenAnswer& answer) {
  if (recorded.recall_thresholds.empty()) return;
  text += "\nabove noise       ";
  for (size_t p = 0; p < recorded.patterns.size(); ++p)
    if (const auto heads = above_recall(recorded, answer.batch.heads, p))
      append_format(text, " %s %zu (%.3g) ", recorded.patterns[p].name.c_str(), heads->size(),
                    recorded.recall_thresholds.at(recorded.patterns[p].name));
  while (text.ends_with(' ')) text.pop_back();
  text += '\n';
}

void append_figures(std::string& text, const ScreenAnswer& answer) {
  const Screen& screen = answer.screen;
  text += "\nspecialised        " + share_text(screen.specialised) + " of all heads have a class";
  if (screen.top_k > 0)
    text += "; " + share_text(screen.specialised_top) + " have one and are among the first " +
            std::to_string(screen.top_k);
  text += '\n';
  if (screen.top_k > 0) {
    text += "precision at k    ";
    for (const auto& at : screen.precision)
      append_format(text, " %lld: %.2f ", static_cast<long long>(at.k), at.precision);
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  } else {
    text += "precision at k     not known: too few heads have a pr_integral\n";
  }
  if (!screen.sinks) return;
  text += "sinks              any " + share_text(screen.sinks->any) + ", by class " +
          share_text(screen.sinks->by_class) + ", by mass " + share_text(screen.sinks->by_mass) +
          '\n';
}

std::string left_out_text(const RecordedScreen& recorded) {
  std::string text;
  const auto append = [&](int64_t count, const char* what) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + ' ' + what;
  };
  append(recorded.skipped, "selectivities that are empty or not finite");
  append(recorded.superseded, "that a later row supersedes");
  append(recorded.other_steps, "of other steps");
  append(recorded.other_phases, "of other phases");
  append(recorded.other_sources, "rows of other sources");
  return text.empty() ? "" : "\nleft out           " + text + '\n';
}

std::string screen_to_text(const RecordedScreen& recorded, const std::vector<ScreenAnswer>& answers,
                           const std::optional<ClassStability>& stability) {
  std::string text;
  for (const auto& answer : answers) {
    if (!text.empty()) text += '\n';
    text += std::to_string(answer.batch.heads.size()) + " heads";
    if (recorded.step) text += ", step " + std::to_string(*recorded.step);
    if (!recorded.phase.empty()) text += " of phase " + recorded.phase;
    if (!answer.batch.name.empty()) text += ", batch " + answer.batch.name;
    text += ", T = " + std::to_string(answer.screen.context) + ", rules of " +
            answer.screen.rules.name + '\n';
    append_table(text, recorded, answer);
    append_above_recall(text, recorded, answer);
    append_figures(text, answer);
  }
  if (stability)
    text += "\nclass stability    " + share_text(stability->unanimous) +
            " of heads have one class in all " + std::to_string(stability->labelings) +
            " batches; two batches agree on " + share_text(stability->pairwise) + '\n';
  return text + left_out_text(recorded);
}

}  // namespace

std::string screen(const ScreenArguments& arguments) {
  const ScreenRules rules = screen_rules_named(arguments.rules);
  RecordedScreen recorded = read_recorded_screen(arguments);
  int64_t context = arguments.context.value_or(recorded.context.value_or(kScreenContext));
  if (rules.scale_to_context)
    context = apply_recorded(recorded.formed_thresholds, recorded.patterns, context);
  std::vector<ScreenAnswer> answers;
  std::vector<std::vector<std::optional<size_t>>> labelings;
  for (const auto& batch : recorded.batches) {
    answers.push_back(
        {batch, screen_heads(recorded.patterns, batch.heads, context, rules, arguments.top)});
    labelings.push_back(answers.back().screen.head_class);
  }
  std::optional<ClassStability> stability;
  if (labelings.size() > 1) stability = class_stability(labelings);
  if (!arguments.json) return screen_to_text(recorded, answers, stability);
  ordered_json answer = {{"definition", definition_to_json(recorded, answers.front().screen)},
                         {"screens", ordered_json::array()},
                         {"stability", stability_to_json(stability)}};
  for (const auto& found : answers) answer["screens"].push_back(answer_to_json(recorded, found));
  return to_text(answer);
}

}  // namespace headscope::cli
