#include "headscope/patterns.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>

namespace headscope {
namespace {

using Tokens = std::span<const int64_t>;
using Positions = std::vector<int64_t>;

/// Key positions fixed by their distance to the query, nearest last; those before the row's start
/// are left out.
TargetFunction at_lags(int64_t farthest, int64_t nearest) {
  return [=](Tokens, int64_t query) {
    Positions positions;
    for (int64_t key = std::max<int64_t>(query - farthest, 0); key <= query - nearest; ++key)
      positions.push_back(key);
    return positions;
  };
}

/// `offset` positions after every earlier occurrence of the query's token, as long as that lies
/// before the query.
TargetFunction after_occurrences(int64_t offset) {
  return [=](Tokens tokens, int64_t query) {
    Positions positions;
    const int64_t token = tokens[static_cast<size_t>(query)];
    for (int64_t key = 0; key + offset < query; ++key)
      if (tokens[static_cast<size_t>(key)] == token) positions.push_back(key + offset);
    return positions;
  };
}

bool well_formed(const std::string& name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

const char* to_string(BehaviourMetric metric) {
  switch (metric) {
    case BehaviourMetric::kPlantedLoss:
      return "planted_loss";
    case BehaviourMetric::kRepeatedLoss:
      return "repeated_loss";
    case BehaviourMetric::kNone:
      break;
  }
  return "none";
}

std::vector<Pattern> standard_patterns() {
  using enum NullKind;
  using enum BehaviourMetric;
  const TargetFunction first = [](Tokens, int64_t) { return Positions{0}; };
  return {
      {"induction", after_occurrences(1), 50, kPermuteTargets, kRepeatedLoss},
      {"previous-token", at_lags(1, 1), 100, kEffectBound, kRepeatedLoss},
      {"duplicate-token", after_occurrences(0), 30, kPermuteTargets, kRepeatedLoss},
      {"first-token", first, 30, kEffectBound, kNone},
      {"self", at_lags(0, 0), 30, kEffectBound, kNone},
      {"local", at_lags(5, 2), 30, kEffectBound, kNone},
  };
}

void validate_patterns(std::span<const Pattern> patterns) {
  std::set<std::string> names;
  for (const auto& pattern : patterns) {
    if (!well_formed(pattern.name))
      throw std::invalid_argument("pattern name '" + pattern.name +
                                  "' is not made of a-z, 0-9, '_' and '-' alone");
    if (!names.insert(pattern.name).second)
      throw std::invalid_argument("pattern '" + pattern.name + "' is given twice");
    if (!pattern.targets)
      throw std::invalid_argument("pattern '" + pattern.name + "' has no target function");
    if (!std::isfinite(pattern.formed_at_256) || pattern.formed_at_256 <= 0)
      throw std::invalid_argument("pattern '" + pattern.name + "' has formed_at_256 " +
                                  std::to_string(pattern.formed_at_256) +
                                  "; give a finite selectivity above 0");
  }
}

}  // namespace headscope
