#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::cli {

using nlohmann::ordered_json;

/// Text of a command's answer; doubles as the shortest that read back the same, NaN as null.
inline std::string to_text(const ordered_json& answer) {
  return answer.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

/// The state that an event leads to: a conversion is a loss with a known whereabouts.
inline std::string state_after(const Event& event) {
  return event.kind == "converted" ? to_string(CircuitState::kLost) : event.kind;
}

/// [[layer, head], ...].
ordered_json heads_to_json(const std::vector<HeadId>& heads);
/// An event; head level: with `layer` and `head`, pattern level: with `heads`.
ordered_json to_json(const Event& event);
/// What stands for a list of figures: itself, or how long it is. Lists of heads stay.
enum class Lists { kWhole, kLengths };
/// All fields of an ablation's report, by their names.
ordered_json to_json(const AblationReport& report, Lists lists);
/// A circuit's reading; steps and figures that do not exist are null.
ordered_json to_json(const CircuitReading& reading);

}  // namespace headscope::cli
