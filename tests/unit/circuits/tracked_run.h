#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "headscope/circuits.h"

namespace headscope::test {

inline std::vector<Pattern> two_patterns() {
  const auto none = [](std::span<const int64_t>, int64_t) { return std::vector<int64_t>{}; };
  return {{"induction", none, 50, NullKind::kPermuteTargets, BehaviourMetric::kPlantedLoss},
          {"self", none, 30, NullKind::kEffectBound, BehaviourMetric::kNone}};
}

/// Two patterns, two heads {0, 0} and {0, 1}, T = 256, a probe every 10 steps from 10 on.
class TrackedRun {
 public:
  explicit TrackedRun(CircuitRules rules = {}, std::vector<Pattern> patterns = two_patterns())
      : tracker(std::move(patterns), 256, std::move(rules)) {
    for (int32_t head = 0; head < 2; ++head) {
      heads.emplace_back().id = {0, head};
      heads.back().patterns.assign(2, {.selectivity = 1});
    }
  }

  /// Next probe: selectivity of `pattern` for head 0 (and head 1, else 1).
  std::vector<Event> probe(double selectivity, double second = 1, size_t pattern = 0) {
    heads[0].patterns[pattern].selectivity = selectivity;
    heads[1].patterns[pattern].selectivity = second;
    return next();
  }
  std::vector<Event> probes(const std::vector<double>& selectivities) {
    std::vector<Event> all;
    for (const double selectivity : selectivities)
      for (auto& event : probe(selectivity)) all.push_back(std::move(event));
    return all;
  }
  /// Next probe with the heads as they stand.
  std::vector<Event> next() { return at(step + 10); }
  std::vector<Event> at(int64_t at_step) {
    step = at_step;
    return tracker.update({.step = step,
                           .tokens = 100. * static_cast<double>(step),
                           .wall_time = 1000. + static_cast<double>(step),
                           .heads = heads,
                           .nulls = nulls});
  }

  CircuitState head(int32_t number = 0, size_t pattern = 0) const {
    return tracker.head_state(pattern, {0, number});
  }
  CircuitReading circuit(size_t pattern = 0) const { return tracker.readings()[pattern]; }

  AblationReport report(CircuitState verdict, std::vector<HeadId> of = {{0, 0}}) const {
    AblationReport report;
    report.pattern = "induction";
    report.metric = "planted_loss";
    report.gate = true;
    report.step = step;
    report.heads = std::move(of);
    report.verdict = verdict;
    report.effect = 2;
    report.reason = "because";
    return report;
  }
  std::vector<Event> judge(CircuitState verdict, std::vector<HeadId> of = {{0, 0}}) {
    return tracker.apply_verdict(report(verdict, std::move(of)), 1, 2);
  }

  CircuitTracker tracker;
  std::vector<HeadReading> heads;
  std::vector<PatternNulls> nulls;
  int64_t step = 0;
};

/// "kind@step" of the head-level or pattern-level events, in order.
inline std::vector<std::string> told(const std::vector<Event>& events, bool head_level) {
  std::vector<std::string> kinds;
  for (const auto& event : events)
    if (event.head_level == head_level)
      kinds.push_back(event.kind + "@" + std::to_string(event.step));
  return kinds;
}

}  // namespace headscope::test
