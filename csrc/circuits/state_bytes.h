#pragma once

// Saved states are CBOR: exact doubles, NaN and infinities included, and named fields.

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "headscope/snapshot.h"

namespace headscope::circuits {

using nlohmann::json;

inline std::string to_bytes(const json& state) {
  std::string bytes;
  json::to_cbor(state, bytes);
  return bytes;
}

/// Parses bytes of the given kind and version; throws std::runtime_error naming what they are
/// instead.
inline json from_bytes(const std::string& bytes, const std::string& kind, int version) {
  json state;
  try {
    state = json::from_cbor(bytes);
  } catch (const json::exception& error) {
    throw std::runtime_error("not a saved " + kind + " state: " + error.what());
  }
  if (!state.is_object() || state.value("kind", json()) != kind)
    throw std::runtime_error("not a saved " + kind + " state");
  if (const json theirs = state.value("version", json()); theirs != version)
    throw std::runtime_error("saved " + kind + " state has version " + theirs.dump() +
                             ", this library reads " + std::to_string(version));
  return state;
}

/// Throws std::runtime_error naming the first setting that differs; settings are objects with the
/// same keys.
inline void require_same(const json& saved, const json& ours, const std::string& what) {
  for (const auto& [name, value] : ours.items()) {
    const json theirs = saved.value(name, json());
    if (theirs != value)
      throw std::runtime_error("saved " + what + " has " + name + " = " + theirs.dump() +
                               ", this run has " + value.dump());
  }
}

inline json id_to_json(HeadId id) { return json::array({id.layer, id.head}); }
inline HeadId id_from_json(const json& pair) {
  return {pair.at(0).get<int32_t>(), pair.at(1).get<int32_t>()};
}

}  // namespace headscope::circuits
