#include "csrc/exporter/history/history_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace headscope::exporter {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

double double_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const std::string text = json.get<std::string>();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return kNaN;
  throw std::runtime_error("'" + text + "' is not a number");
}

Json json_of(const std::vector<double>& values) {
  Json list = Json::array();
  for (const double value : values) list.push_back(json_of(value));
  return list;
}

std::vector<double> doubles_of(const Json& json) {
  std::vector<double> values;
  for (const Json& item : json) values.push_back(double_of(item));
  return values;
}

Json json_of(const std::vector<HeadId>& heads) {
  Json list = Json::array();
  for (const HeadId& id : heads) list.push_back(Json::array({id.layer, id.head}));
  return list;
}

std::vector<HeadId> heads_of(const Json& json) {
  std::vector<HeadId> heads;
  for (const Json& item : json) {
    heads.push_back({item.at(0).get<int32_t>(), item.at(1).get<int32_t>()});
  }
  return heads;
}

/// Names come from users: bytes that are not UTF-8 are replaced, a history must not fail on them.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Parses and hands to `read`; every kind of error becomes one std::runtime_error.
template <typename Read>
auto parse(const std::string& text, const char* what, const Read& read) {
  try {
    return read(Json::parse(text));
  } catch (const Json::exception& error) {
    throw std::runtime_error(std::string("bad JSON of ") + what + ": " + error.what());
  } catch (const std::invalid_argument& error) {  // a state that is not one
    throw std::runtime_error(std::string("bad JSON of ") + what + ": " + error.what());
  }
}

Json json_of(const CircuitReading& circuit) {
  return {{"pattern", circuit.pattern},
          {"state", to_string(circuit.state)},
          {"heads", json_of(circuit.heads)},
          {"formed_threshold", json_of(circuit.formed_threshold)},
          {"critical_margin_z", json_of(circuit.critical_margin_z)},
          {"best_selectivity", json_of(circuit.best_selectivity)},
          {"emerging_step", circuit.emerging_step},
          {"margin_step", circuit.margin_step},
          {"mass_step", circuit.mass_step},
          {"formed_step", circuit.formed_step},
          {"verified_step", circuit.verified_step},
          {"emerging_tokens", json_of(circuit.emerging_tokens)},
          {"formed_tokens", json_of(circuit.formed_tokens)},
          {"verified_tokens", json_of(circuit.verified_tokens)}};
}

CircuitReading circuit_of(const Json& json) {
  CircuitReading circuit;
  circuit.pattern = json.at("pattern");
  circuit.state = circuit_state_from_string(json.at("state"));
  circuit.heads = heads_of(json.at("heads"));
  circuit.formed_threshold = double_of(json.at("formed_threshold"));
  circuit.critical_margin_z = double_of(json.at("critical_margin_z"));
  circuit.best_selectivity = double_of(json.at("best_selectivity"));
  circuit.emerging_step = json.at("emerging_step");
  circuit.margin_step = json.at("margin_step");
  circuit.mass_step = json.at("mass_step");
  circuit.formed_step = json.at("formed_step");
  circuit.verified_step = json.at("verified_step");
  circuit.emerging_tokens = double_of(json.at("emerging_tokens"));
  circuit.formed_tokens = double_of(json.at("formed_tokens"));
  circuit.verified_tokens = double_of(json.at("verified_tokens"));
  return circuit;
}

}  // namespace

std::string to_json(const Event& event) {
  Json figures = Json::object();
  for (const auto& [name, value] : event.figures) figures[name] = json_of(value);
  return dump({{"step", event.step},
               {"tokens", json_of(event.tokens)},
               {"wall_time", json_of(event.wall_time)},
               {"previous_probe_step", event.previous_probe_step},
               {"kind", event.kind},
               {"pattern", event.pattern},
               {"head_level", event.head_level},
               {"heads", json_of(event.heads)},
               {"figures", figures},
               {"rule", event.rule}});
}

Event event_from_json(const std::string& text) {
  return parse(text, "an event", [](const Json& json) {
    Event event;
    event.step = json.at("step");
    event.tokens = double_of(json.at("tokens"));
    event.wall_time = double_of(json.at("wall_time"));
    event.previous_probe_step = json.at("previous_probe_step");
    event.kind = json.at("kind");
    event.pattern = json.at("pattern");
    event.head_level = json.at("head_level");
    event.heads = heads_of(json.at("heads"));
    for (const auto& [name, value] : json.at("figures").items()) {
      event.figures[name] = double_of(value);
    }
    event.rule = json.at("rule");
    return event;
  });
}

std::string to_json(const AblationReport& report) {
  Json control_sets = Json::array();
  for (const auto& set : report.control_sets) control_sets.push_back(json_of(set));
  return dump({{"pattern", report.pattern},
               {"metric", report.metric},
               {"gate", report.gate},
               {"step", report.step},
               {"heads", json_of(report.heads)},
               {"baseline_loss", json_of(report.baseline_loss)},
               {"ablated_loss", json_of(report.ablated_loss)},
               {"effect", json_of(report.effect)},
               {"control_effects", json_of(report.control_effects)},
               {"control_sets", control_sets},
               {"single_head_effects", json_of(report.single_head_effects)},
               {"control_mean", json_of(report.control_mean)},
               {"difference_low", json_of(report.difference_low)},
               {"difference_high", json_of(report.difference_high)},
               {"upper_bound_effect", json_of(report.upper_bound_effect)},
               {"attainable_p", json_of(report.attainable_p)},
               {"examples", report.examples},
               {"verdict", to_string(report.verdict)},
               {"reason", report.reason}});
}

AblationReport ablation_from_json(const std::string& text) {
  return parse(text, "an ablation", [](const Json& json) {
    AblationReport report;
    report.pattern = json.at("pattern");
    report.metric = json.at("metric");
    report.gate = json.at("gate");
    report.step = json.at("step");
    report.heads = heads_of(json.at("heads"));
    report.baseline_loss = double_of(json.at("baseline_loss"));
    report.ablated_loss = double_of(json.at("ablated_loss"));
    report.effect = double_of(json.at("effect"));
    report.control_effects = doubles_of(json.at("control_effects"));
    for (const Json& set : json.at("control_sets")) report.control_sets.push_back(heads_of(set));
    report.single_head_effects = doubles_of(json.at("single_head_effects"));
    report.control_mean = double_of(json.at("control_mean"));
    report.difference_low = double_of(json.at("difference_low"));
    report.difference_high = double_of(json.at("difference_high"));
    report.upper_bound_effect = double_of(json.at("upper_bound_effect"));
    report.attainable_p = double_of(json.at("attainable_p"));
    report.examples = json.at("examples");
    report.verdict = circuit_state_from_string(json.at("verdict"));
    report.reason = json.at("reason");
    return report;
  });
}

std::string to_json(const std::vector<CircuitReading>& circuits) {
  Json list = Json::array();
  for (const CircuitReading& circuit : circuits) list.push_back(json_of(circuit));
  return dump(list);
}

std::vector<CircuitReading> circuits_from_json(const std::string& text) {
  return parse(text, "circuits", [](const Json& json) {
    std::vector<CircuitReading> circuits;
    for (const Json& item : json) circuits.push_back(circuit_of(item));
    return circuits;
  });
}

std::string to_json(const Health& health) {
  return dump({{"errors", health.errors},
               {"taps", health.taps},
               {"taps_missing", health.taps_missing},
               {"taps_skipped", health.taps_skipped},
               {"snapshots_dropped", health.snapshots_dropped},
               {"nonfinite_readings", health.nonfinite_readings},
               {"probes", health.probes},
               {"measured_steps", health.measured_steps},
               {"deferred", health.deferred},
               {"budget_ratio", json_of(health.budget_ratio)},
               {"budget_used_ratio", json_of(health.budget_used_ratio)},
               {"tap_seconds", json_of(health.tap_seconds)},
               {"probe_seconds", json_of(health.probe_seconds)},
               {"ablation_seconds", json_of(health.ablation_seconds)},
               {"wait_seconds", json_of(health.wait_seconds)},
               {"analysis_seconds", json_of(health.analysis_seconds)}});
}

Health health_from_json(const std::string& text) {
  return parse(text, "health", [](const Json& json) {
    Health health;
    for (const auto& [kind, count] : json.at("errors").items()) health.errors[kind] = count;
    health.taps = json.at("taps");
    health.taps_missing = json.at("taps_missing");
    health.taps_skipped = json.at("taps_skipped");
    health.snapshots_dropped = json.at("snapshots_dropped");
    health.nonfinite_readings = json.at("nonfinite_readings");
    health.probes = json.at("probes");
    health.measured_steps = json.at("measured_steps");
    health.deferred = json.at("deferred");
    health.budget_ratio = double_of(json.at("budget_ratio"));
    health.budget_used_ratio = double_of(json.at("budget_used_ratio"));
    health.tap_seconds = double_of(json.at("tap_seconds"));
    health.probe_seconds = double_of(json.at("probe_seconds"));
    health.ablation_seconds = double_of(json.at("ablation_seconds"));
    health.wait_seconds = double_of(json.at("wait_seconds"));
    health.analysis_seconds = double_of(json.at("analysis_seconds"));
    return health;
  });
}

std::string to_json(const std::vector<std::string>& names) { return dump(Json(names)); }

std::vector<std::string> names_from_json(const std::string& text) {
  return parse(text, "names",
               [](const Json& json) { return json.get<std::vector<std::string>>(); });
}

}  // namespace headscope::exporter
