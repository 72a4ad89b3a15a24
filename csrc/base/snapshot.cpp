#include "headscope/snapshot.h"

#include <array>
#include <stdexcept>

namespace headscope {
namespace {

constexpr std::array<const char*, kCircuitStates> kStateNames = {
    "dormant",    "emerging",   "formed",       "verified",
    "not_causal", "unspecific", "inconclusive", "lost"};

}  // namespace

const char* to_string(Source source) { return source == Source::kTrain ? "train" : "probe"; }

const char* to_string(CircuitState state) { return kStateNames.at(static_cast<size_t>(state)); }

CircuitState circuit_state_from_string(const std::string& name) {
  for (size_t i = 0; i < kStateNames.size(); ++i)
    if (name == kStateNames[i]) return static_cast<CircuitState>(i);
  std::string known;
  for (const char* state : kStateNames) known += known.empty() ? state : std::string(", ") + state;
  throw std::invalid_argument("unknown circuit state '" + name + "'; known: " + known);
}

}  // namespace headscope
