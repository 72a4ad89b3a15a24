#include "tests/simulation/simulated_verdicts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <utility>

#include "csrc/monitor/analysis/verification.h"

namespace headscope::simulation {
namespace {

constexpr int64_t kContext = 256;
constexpr int64_t kMostProbes = 4000;

bool in_circuit(const Layout& layout, HeadId id) {
  return id.head < layout.layers[static_cast<size_t>(id.layer)].circuit;
}

double normal(double mean, double sd, std::mt19937_64& engine) {
  return std::normal_distribution<double>(mean, sd)(engine);
}

/// All heads: the circuit's far beyond the threshold of the first pattern, others far below.
std::vector<HeadReading> readings_of(const Layout& layout, std::mt19937_64& engine) {
  std::vector<HeadReading> readings;
  for (size_t layer = 0; layer < layout.layers.size(); ++layer) {
    for (int32_t head = 0; head < layout.layers[layer].heads; ++head) {
      HeadReading& reading = readings.emplace_back();
      reading.id = {static_cast<int32_t>(layer), head};
      reading.output_norm = std::abs(normal(1, .2, engine));
      reading.patterns.assign(standard_patterns().size(), {.selectivity = .5, .mass = .01});
      if (in_circuit(layout, reading.id)) reading.patterns[0] = {.selectivity = 80, .mass = .5};
    }
  }
  return readings;
}

}  // namespace

Heads Layout::circuit() const {
  Heads heads;
  for (size_t layer = 0; layer < layers.size(); ++layer)
    for (int32_t head = 0; head < layers[layer].circuit; ++head)
      heads.push_back({static_cast<int32_t>(layer), head});
  return heads;
}

std::string Layout::name() const {
  std::string text;
  for (const Layer& layer : layers)
    text += (text.empty() ? "" : " + ") + std::to_string(layer.circuit) + " of " +
            std::to_string(layer.heads);
  return text;
}

double draw(Noise noise, std::mt19937_64& engine) {
  switch (noise) {
    case Noise::kSkewed:
      return std::exponential_distribution<double>(1)(engine) - 1;
    case Noise::kHeavyTailed:
      return std::student_t_distribution<double>(3)(engine);
    case Noise::kNormal:
      break;
  }
  return normal(0, 1, engine);
}

World sum_of_heads(double circuit, double others_sd) {
  return [=](const Layout& layout, std::mt19937_64& engine) -> SetEffect {
    std::map<HeadId, double> effects;
    const auto own = static_cast<double>(layout.circuit().size());
    for (size_t layer = 0; layer < layout.layers.size(); ++layer) {
      for (int32_t head = 0; head < layout.layers[layer].heads; ++head) {
        const HeadId id{static_cast<int32_t>(layer), head};
        effects[id] = in_circuit(layout, id) ? circuit / own : normal(0, others_sd, engine);
      }
    }
    return [effects](const Heads& set, int64_t, std::mt19937_64&) {
      double sum = 0;
      for (const HeadId id : set) sum += effects.at(id);
      return sum;
    };
  };
}

World exchangeable_heads(double mean, double sd) {
  return [=](const Layout& layout, std::mt19937_64& engine) -> SetEffect {
    std::map<HeadId, double> effects;
    for (size_t layer = 0; layer < layout.layers.size(); ++layer)
      for (int32_t head = 0; head < layout.layers[layer].heads; ++head)
        effects[{static_cast<int32_t>(layer), head}] = normal(mean, sd, engine);
    return [effects](const Heads& set, int64_t, std::mt19937_64&) {
      double sum = 0;
      for (const HeadId id : set) sum += effects.at(id);
      return sum;
    };
  };
}

World exchangeable_sets(double mean, double sd, bool fresh) {
  return [=](const Layout&, std::mt19937_64&) -> SetEffect {
    const auto known = std::make_shared<std::map<std::pair<int64_t, Heads>, double>>();
    return [=](const Heads& set, int64_t attempt, std::mt19937_64& engine) {
      Heads sorted = set;
      std::sort(sorted.begin(), sorted.end());
      const auto [at, is_new] = known->try_emplace({fresh ? attempt : 0, std::move(sorted)}, 0);
      if (is_new) at->second = normal(mean, sd, engine);
      return at->second;
    };
  };
}

World given(double circuit, std::function<double(const Heads& set)> other) {
  return [=](const Layout& layout, std::mt19937_64&) -> SetEffect {
    const auto all = static_cast<double>(layout.circuit().size());
    return [=](const Heads& set, int64_t, std::mt19937_64&) {
      const auto own =
          std::count_if(set.begin(), set.end(), [&](HeadId id) { return in_circuit(layout, id); });
      return own > 0 ? circuit * static_cast<double>(own) / all : other(set);
    };
  };
}

Judged judge_run(const VerdictCase& of, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const VerdictRule rule;
  const std::vector<Pattern> patterns = standard_patterns();
  CircuitTracker tracker(patterns, kContext);
  const std::vector<HeadReading> readings = readings_of(of.layout, engine);
  const SetEffect effect_of = of.world(of.layout, engine);

  Judged judged;
  for (int64_t step = 1; step <= kMostProbes && std::ssize(judged.reports) < of.attempts; ++step) {
    tracker.update(
        {.step = step, .tokens = static_cast<double>(step), .heads = readings, .nulls = {}});
    const auto due = tracker.verification_due();
    if (!due) continue;

    std::vector<double> base(static_cast<size_t>(of.rows));
    for (double& loss : base) loss = normal(5, 1, engine);
    const auto losses_without = [&](const Heads& heads, size_t examples) {
      std::vector<double> losses(base.begin(), base.begin() + static_cast<int64_t>(examples));
      const double effect = effect_of(heads, due->attempt, engine);
      for (double& loss : losses) loss += effect + of.spread * draw(of.noise, engine);
      return losses;
    };
    ControlOptions controls;
    controls.seed +=
        static_cast<uint32_t>(due->pattern) + 1000 * static_cast<uint32_t>(due->attempt);
    Verification verification(due->pattern, patterns[due->pattern].metric, due->attempt,
                              AblationTrial::of(due->heads, readings, due->pattern, controls, rule,
                                                std::max(rule.level - due->level_spent, 0.0)));
    verification.sit(base);
    for (auto next = verification.trial.next(); next; next = verification.trial.next())
      verification.enter(losses_without(next->heads, next->examples), rule);
    AblationReport report;
    report.pattern = patterns[due->pattern].name;
    report.metric = to_string(verification.metric);
    report.gate = true;
    report.step = step;
    verification.trial.judge(rule, report);
    judged.ever_verified = judged.ever_verified || report.verdict == CircuitState::kVerified;
    tracker.apply_verdict(report, static_cast<double>(step), static_cast<double>(step));
    judged.reports.push_back(std::move(report));
  }
  judged.last = tracker.readings()[0].state;
  return judged;
}

}  // namespace headscope::simulation
