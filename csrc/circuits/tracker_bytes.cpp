#include <algorithm>
#include <stdexcept>

#include "csrc/circuits/circuit_state.h"
#include "csrc/circuits/state_bytes.h"

namespace headscope::circuits {
namespace {

constexpr int kVersion = 4;
constexpr const char* kKind = "circuits";

json rules_to_json(const CircuitRules& rules) {
  return {{"name", rules.name},
          {"precursor", to_string(rules.precursor)},
          {"alpha", rules.alpha},
          {"planned_probes", rules.planned_probes},
          {"probes_in_a_row", rules.probes_in_a_row},
          {"emerging_selectivity", rules.emerging_selectivity},
          {"mass_floor", rules.mass_floor},
          {"leave_fraction", rules.leave_fraction},
          {"class_at_256", rules.class_at_256},
          {"scale_to_context", rules.scale_to_context},
          {"previous_token_by_class", rules.previous_token_by_class},
          {"settle_probes", rules.settle_probes},
          {"retry_probes", rules.retry_probes}};
}

json setup_to_json(const TrackerSetup& setup) {
  json patterns = json::array();
  for (const auto& pattern : setup.patterns)
    patterns.push_back({{"name", pattern.name},
                        {"formed_at_256", pattern.formed_at_256},
                        {"null", static_cast<int>(pattern.null)},
                        {"metric", to_string(pattern.metric)}});
  return {
      {"contexts", setup.contexts}, {"patterns", patterns}, {"rules", rules_to_json(setup.rules)}};
}

json ids_to_json(const std::vector<HeadId>& ids) {
  json list = json::array();
  for (const HeadId id : ids) list.push_back(id_to_json(id));
  return list;
}

std::vector<HeadId> ids_from_json(const json& list) {
  std::vector<HeadId> ids;
  for (const auto& pair : list) ids.push_back(id_from_json(pair));
  return ids;
}

json moment_to_json(const Moment& moment) {
  return json::array({moment.step, moment.tokens, moment.after, moment.probe});
}

Moment moment_from_json(const json& list) {
  return {list.at(0).get<int64_t>(), list.at(1).get<double>(), list.at(2).get<int64_t>(),
          list.at(3).get<int64_t>()};
}

json streak_to_json(const Streak& streak) {
  return json::array({streak.length, moment_to_json(streak.first)});
}

Streak streak_from_json(const json& list) {
  return {list.at(0).get<int64_t>(), moment_from_json(list.at(1))};
}

json head_to_json(const HeadLife& head) {
  return json::array({to_string(head.state), streak_to_json(head.rising),
                      streak_to_json(head.fading), streak_to_json(head.forming),
                      streak_to_json(head.leaving), moment_to_json(head.formed), head.denied});
}

HeadLife head_from_json(const json& list) {
  return {circuit_state_from_string(list.at(0).get<std::string>()),
          streak_from_json(list.at(1)),
          streak_from_json(list.at(2)),
          streak_from_json(list.at(3)),
          streak_from_json(list.at(4)),
          moment_from_json(list.at(5)),
          list.at(6).get<bool>()};
}

json circuit_to_json(const CircuitLife& circuit) {
  json heads = json::array();
  for (const auto& head : circuit.heads) heads.push_back(head_to_json(head));
  return {{"state", to_string(circuit.state)},
          {"heads", heads},
          {"emerging", moment_to_json(circuit.emerging)},
          {"formed", moment_to_json(circuit.formed)},
          {"verified", moment_to_json(circuit.verified)},
          {"margin_run", streak_to_json(circuit.margin_run)},
          {"mass_run", streak_to_json(circuit.mass_run)},
          {"critical_margin_z", circuit.critical_margin_z},
          {"best_selectivity", circuit.best_selectivity},
          {"tried_heads", ids_to_json(circuit.tried_heads)},
          {"judged_heads", ids_to_json(circuit.judged_heads)},
          {"tried_at_probe", circuit.tried_at_probe},
          {"attempts", circuit.attempts},
          {"attempts_before", circuit.attempts_before},
          {"level_spent", circuit.level_spent},
          {"formed_heads", ids_to_json(circuit.formed_heads)},
          {"formed_at_probe", circuit.formed_at_probe},
          {"changed_at_probe", circuit.changed_at_probe},
          {"not_causal_high", circuit.not_causal_high}};
}

CircuitLife circuit_from_json(const json& object) {
  CircuitLife circuit;
  circuit.state = circuit_state_from_string(object.at("state").get<std::string>());
  for (const auto& head : object.at("heads")) circuit.heads.push_back(head_from_json(head));
  circuit.emerging = moment_from_json(object.at("emerging"));
  circuit.formed = moment_from_json(object.at("formed"));
  circuit.verified = moment_from_json(object.at("verified"));
  circuit.margin_run = streak_from_json(object.at("margin_run"));
  circuit.mass_run = streak_from_json(object.at("mass_run"));
  circuit.critical_margin_z = object.at("critical_margin_z").get<double>();
  circuit.best_selectivity = object.at("best_selectivity").get<double>();
  circuit.tried_heads = ids_from_json(object.at("tried_heads"));
  circuit.judged_heads = ids_from_json(object.at("judged_heads"));
  circuit.tried_at_probe = object.at("tried_at_probe").get<int64_t>();
  circuit.attempts = object.at("attempts").get<int64_t>();
  circuit.attempts_before = object.at("attempts_before").get<int64_t>();
  circuit.level_spent = object.at("level_spent").get<double>();
  circuit.formed_heads = ids_from_json(object.at("formed_heads"));
  circuit.formed_at_probe = object.at("formed_at_probe").get<int64_t>();
  circuit.changed_at_probe = object.at("changed_at_probe").get<int64_t>();
  circuit.not_causal_high = object.at("not_causal_high").get<double>();
  return circuit;
}

/// A circuit that has formed, or is emerging, owes it to a head that is.
bool agrees_with_heads(const CircuitLife& circuit) {
  const auto any = [&](CircuitState state) {
    return std::any_of(circuit.heads.begin(), circuit.heads.end(),
                       [&](const HeadLife& head) { return head.state == state; });
  };
  return circuit.has_formed() == any(CircuitState::kFormed) &&
         (circuit.state != CircuitState::kEmerging || any(CircuitState::kEmerging));
}

TrackerState state_from_json(const json& saved, size_t patterns) {
  TrackerState state;
  state.head_ids = ids_from_json(saved.at("head_ids"));
  state.probes = saved.at("probes").get<int64_t>();
  state.stretch = saved.at("stretch").get<int64_t>();
  state.now = moment_from_json(saved.at("now"));
  for (const auto& circuit : saved.at("circuits"))
    state.circuits.push_back(circuit_from_json(circuit));
  bool whole = state.circuits.size() == patterns;
  for (const auto& circuit : state.circuits)
    whole = whole && circuit.heads.size() == state.head_ids.size() && agrees_with_heads(circuit);
  if (!whole)
    throw std::runtime_error("saved circuits state is damaged: heads and patterns do not agree");
  return state;
}

}  // namespace

std::string serialise(const TrackerSetup& setup, const TrackerState& state) {
  json circuits = json::array();
  for (const auto& circuit : state.circuits) circuits.push_back(circuit_to_json(circuit));
  return to_bytes({{"kind", kKind},
                   {"version", kVersion},
                   {"setup", setup_to_json(setup)},
                   {"head_ids", ids_to_json(state.head_ids)},
                   {"probes", state.probes},
                   {"stretch", state.stretch},
                   {"now", moment_to_json(state.now)},
                   {"circuits", circuits}});
}

TrackerState restore(const TrackerSetup& setup, const std::string& bytes) {
  const json saved = from_bytes(bytes, kKind, kVersion);
  try {
    const json& theirs = saved.at("setup");
    const json ours = setup_to_json(setup);
    require_same(theirs.at("rules"), ours.at("rules"), "circuits state");
    require_same(theirs, ours, "circuits state");
    return state_from_json(saved, setup.patterns.size());
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string("saved circuits state is damaged: ") + error.what());
  } catch (const std::invalid_argument& error) {
    throw std::runtime_error(std::string("saved circuits state is damaged: ") + error.what());
  }
}

}  // namespace headscope::circuits
