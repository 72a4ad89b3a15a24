#include "plugin/cli/json_text.h"

#include <cmath>

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

ordered_json to_json(const CircuitReading& reading) {
  return {{"pattern", reading.pattern},
          {"state", to_string(reading.state)},
          {"heads", heads_to_json(reading.heads)},
          {"formed_threshold", reading.formed_threshold},
          {"best_selectivity", reading.best_selectivity},
          {"emerging_step", step_to_json(reading.emerging_step)},
          {"formed_step", step_to_json(reading.formed_step)},
          {"verified_step", step_to_json(reading.verified_step)}};
}

}  // namespace headscope::cli
