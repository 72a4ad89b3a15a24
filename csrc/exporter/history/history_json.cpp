#include "csrc/exporter/history/history_json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headscope/fields.h"

namespace headscope::exporter {
namespace {

using Json = nlohmann::ordered_json;

// One overload a type that a field of a record may have; JSON's own types need none.

Json json_of(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}
Json json_of(bool value) { return value; }
Json json_of(int64_t value) { return value; }
Json json_of(uint64_t value) { return value; }
Json json_of(const std::string& value) { return value; }
Json json_of(CircuitState state) { return to_string(state); }
Json json_of(const HeadId& id) { return Json::array({id.layer, id.head}); }

template <typename Item>
Json json_of(const std::vector<Item>& items) {
  Json list = Json::array();
  for (const Item& item : items) list.push_back(json_of(item));
  return list;
}

template <typename Value>
Json json_of(const std::map<std::string, Value>& items) {
  Json object = Json::object();
  for (const auto& [name, value] : items) object[name] = json_of(value);
  return object;
}

template <typename Value>
void read(const Json& json, Value& value) {
  json.get_to(value);
}
void read(const Json& json, double& value) {
  if (json.is_number()) {
    json.get_to(value);
    return;
  }
  const std::string text = json.get<std::string>();
  if (text == "Infinity") {
    value = std::numeric_limits<double>::infinity();
  } else if (text == "-Infinity") {
    value = -std::numeric_limits<double>::infinity();
  } else if (text == "NaN") {
    value = kNaN;
  } else {
    throw std::runtime_error("'" + text + "' is not a number");
  }
}
void read(const Json& json, CircuitState& state) { state = circuit_state_from_string(json); }
void read(const Json& json, HeadId& id) {
  id = {json.at(0).get<int32_t>(), json.at(1).get<int32_t>()};
}

template <typename Item>
void read(const Json& json, std::vector<Item>& items) {
  for (const Json& item : json) read(item, items.emplace_back());
}

template <typename Value>
void read(const Json& json, std::map<std::string, Value>& items) {
  for (const auto& [name, value] : json.items()) read(value, items[name]);
}

template <typename Record>
Json object_of(const Record& record) {
  Json object = Json::object();
  for_each_field<Record>(
      [&](const auto& field) { object[std::string(field.name)] = json_of(record.*field.member); });
  return object;
}

template <typename Record>
Record record_of(const Json& json) {
  Record record;
  for_each_field<Record>(
      [&](const auto& field) { read(json.at(std::string(field.name)), record.*field.member); });
  return record;
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

}  // namespace

std::string to_json(const Event& event) { return dump(object_of(event)); }

Event event_from_json(const std::string& text) { return parse(text, "an event", record_of<Event>); }

std::string to_json(const AblationReport& report) { return dump(object_of(report)); }

AblationReport ablation_from_json(const std::string& text) {
  return parse(text, "an ablation", record_of<AblationReport>);
}

std::string to_json(const NullCalibration& calibration) { return dump(object_of(calibration)); }

NullCalibration calibration_from_json(const std::string& text) {
  return parse(text, "a null calibration", record_of<NullCalibration>);
}

std::string to_json(const std::vector<CircuitReading>& circuits) {
  Json list = Json::array();
  for (const CircuitReading& circuit : circuits) list.push_back(object_of(circuit));
  return dump(list);
}

std::vector<CircuitReading> circuits_from_json(const std::string& text) {
  return parse(text, "circuits", [](const Json& json) {
    std::vector<CircuitReading> circuits;
    for (const Json& item : json) circuits.push_back(record_of<CircuitReading>(item));
    return circuits;
  });
}

std::string to_json(const Health& health) { return dump(object_of(health)); }

Health health_from_json(const std::string& text) {
  return parse(text, "health", record_of<Health>);
}

std::string to_json(const std::vector<std::string>& names) { return dump(Json(names)); }

std::vector<std::string> names_from_json(const std::string& text) {
  return parse(text, "names",
               [](const Json& json) { return json.get<std::vector<std::string>>(); });
}

}  // namespace headscope::exporter
