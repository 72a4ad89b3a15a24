#include "plugin/cli/json_text.h"

#include <string>
#include <type_traits>
#include <vector>

#include "headscope/fields.h"

namespace headscope::cli {
namespace {

ordered_json step_to_json(int64_t step) { return step < 0 ? ordered_json() : ordered_json(step); }

}  // namespace

ordered_json heads_to_json(const std::vector<HeadId>& heads) {
  ordered_json list = ordered_json::array();
  for (const HeadId id : heads) list.push_back(ordered_json::array({id.layer, id.head}));
  return list;
}

ordered_json to_json(const Event& event) {
  ordered_json object = {{"pattern", event.pattern}};
  if (event.head_level && !event.heads.empty()) {
    object["layer"] = event.heads.front().layer;
    object["head"] = event.heads.front().head;
  } else {
    object["heads"] = heads_to_json(event.heads);
  }
  object["state"] = state_after(event);
  object["kind"] = event.kind;
  object["step"] = event.step;
  object["tokens"] = event.tokens;
  object["previous_probe_step"] = step_to_json(event.previous_probe_step);
  object["figures"] = event.figures;
  object["rule"] = event.rule;
  return object;
}

ordered_json to_json(const AblationReport& report, Lists lists) {
  ordered_json object;
  for_each_field<AblationReport>([&](const auto& field) {
    const auto& value = report.*field.member;
    using Value = std::remove_cvref_t<decltype(value)>;
    ordered_json& entry = object[std::string(field.name)];
    if constexpr (std::is_same_v<Value, CircuitState>)
      entry = to_string(value);
    else if constexpr (std::is_same_v<Value, std::vector<HeadId>>)
      entry = heads_to_json(value);
    else if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>)
      entry = value;
    else if (lists == Lists::kLengths)
      entry = value.size();
    else if constexpr (std::is_same_v<Value, std::vector<std::vector<HeadId>>>)
      for (const auto& heads : value) entry.push_back(heads_to_json(heads));
    else
      entry = value;
    if (entry.is_null() && !std::is_arithmetic_v<Value>) entry = ordered_json::array();
  });
  return object;
}

ordered_json to_json(const CircuitReading& reading) {
  return {{"pattern", reading.pattern},
          {"state", to_string(reading.state)},
          {"heads", heads_to_json(reading.heads)},
          {"formed_threshold", reading.formed_threshold},
          {"best_selectivity", reading.best_selectivity},
          {"critical_margin_z", reading.critical_margin_z},
          {"judged_heads", heads_to_json(reading.judged_heads)},
          {"margin_step", step_to_json(reading.margin_step)},
          {"mass_step", step_to_json(reading.mass_step)},
          {"emerging_step", step_to_json(reading.emerging_step)},
          {"formed_step", step_to_json(reading.formed_step)},
          {"verified_step", step_to_json(reading.verified_step)}};
}

}  // namespace headscope::cli
