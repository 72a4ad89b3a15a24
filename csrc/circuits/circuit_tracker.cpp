#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "csrc/circuits/text.h"
#include "csrc/circuits/tracker_impl.h"
#include "headscope/circuits.h"

namespace headscope {

using namespace circuits;
using enum CircuitState;

namespace {

constexpr int64_t kMostDoublings = 20;
constexpr int64_t kLongestSettling = 4;  // times CircuitRules::settle_probes

/// Probes that must pass after a circuit's last attempt before it is verified anew.
int64_t retry_wait(const CircuitRules& rules, const CircuitLife& circuit) {
  return rules.retry_probes << std::clamp<int64_t>(circuit.attempts - 1, 0, kMostDoublings);
}

/// Whether a circuit's heads have stayed the same for long enough, or have gone on changing for too
/// long, to be ablated for the first time.
bool has_settled(const CircuitRules& rules, const CircuitLife& circuit, int64_t probe) {
  return probe - circuit.changed_at_probe >= rules.settle_probes ||
         probe - circuit.formed_at_probe >= kLongestSettling * rules.settle_probes;
}

bool is_verdict(CircuitState state) {
  return state == kVerified || state == kNotCausal || state == kUnspecific ||
         state == kInconclusive;
}

}  // namespace

const char* to_string(Precursor precursor) {
  switch (precursor) {
    case Precursor::kMargin:
      return "margin";
    case Precursor::kMass:
      return "mass";
    case Precursor::kEither:
      return "either";
    case Precursor::kSelectivity:
      break;
  }
  return "selectivity";
}

CircuitRules CircuitRules::reference() {
  CircuitRules rules;
  rules.precursor = Precursor::kSelectivity;
  rules.probes_in_a_row = 1;
  rules.emerging_selectivity = 2;
  rules.mass_floor = 0;
  rules.leave_fraction = 1;
  rules.scale_to_context = false;
  rules.previous_token_by_class = true;
  rules.name = "reference";
  return rules;
}

CircuitTracker::CircuitTracker(std::vector<Pattern> patterns, std::vector<int64_t> contexts,
                               CircuitRules rules)
    : impl_(std::make_unique<Impl>()) {
  if (patterns.empty()) throw std::invalid_argument("no patterns to track; give one or more");
  if (contexts.size() != patterns.size())
    throw std::invalid_argument(std::to_string(contexts.size()) + " contexts for " +
                                std::to_string(patterns.size()) + " patterns");
  for (const int64_t context : contexts) {
    if (context < 2)
      throw std::invalid_argument("context " + std::to_string(context) +
                                  " is too short for an attention pattern; give 2 or more tokens");
  }
  validate_patterns(patterns);
  validate_rules(rules);
  impl_->state.circuits.resize(patterns.size());
  impl_->setup = {std::move(patterns), std::move(contexts), std::move(rules)};
}

CircuitTracker::CircuitTracker(std::vector<Pattern> patterns, int64_t context, CircuitRules rules)
    : CircuitTracker(patterns, std::vector<int64_t>(patterns.size(), context), std::move(rules)) {}

CircuitTracker::~CircuitTracker() = default;
CircuitTracker::CircuitTracker(CircuitTracker&&) noexcept = default;
CircuitTracker& CircuitTracker::operator=(CircuitTracker&&) noexcept = default;

std::vector<Event> CircuitTracker::update(const ProbeEvidence& probe) {
  impl_->check(probe);
  return impl_->take(probe);
}

std::vector<CircuitTracker::Due> CircuitTracker::formed_circuits() const {
  const auto& [setup, state] = *impl_;
  std::vector<Due> formed;
  for (size_t p = 0; p < setup.patterns.size(); ++p) {
    const CircuitLife& circuit = state.circuits[p];
    if (setup.patterns[p].metric == BehaviourMetric::kNone || !circuit.has_formed()) continue;
    formed.push_back({p, impl_->members(circuit), circuit.attempts_before + circuit.attempts,
                      circuit.level_spent});
  }
  return formed;
}

std::optional<CircuitTracker::Due> CircuitTracker::verification_due() const {
  const auto& [setup, state] = *impl_;
  std::optional<Due> due;
  for (Due& candidate : formed_circuits()) {
    const CircuitLife& circuit = state.circuits[candidate.pattern];
    const bool unsettled = circuit.state != kVerified || circuit.tried_heads != candidate.heads;
    const bool waited = circuit.tried_at_probe < 0 ||
                        state.probes - circuit.tried_at_probe >= retry_wait(setup.rules, circuit);
    if (!unsettled || !waited) continue;
    if (circuit.attempts == 0 && !has_settled(setup.rules, circuit, state.probes)) continue;
    if (!due || circuit.tried_at_probe < state.circuits[due->pattern].tried_at_probe)
      due = std::move(candidate);
  }
  return due;
}

std::vector<Event> CircuitTracker::apply_verdict(const AblationReport& report, double tokens,
                                                 double wall_time) {
  auto& [setup, state] = *impl_;
  const auto found = std::find_if(setup.patterns.begin(), setup.patterns.end(),
                                  [&](const Pattern& p) { return p.name == report.pattern; });
  if (found == setup.patterns.end())
    throw std::invalid_argument("verdict on pattern '" + report.pattern +
                                "', which is not tracked");
  if (!is_verdict(report.verdict))
    throw std::invalid_argument(std::string("'") + to_string(report.verdict) +
                                "' is no verdict of an ablation");
  CircuitLife& circuit = state.circuits[static_cast<size_t>(found - setup.patterns.begin())];
  const auto members = impl_->members(circuit);
  const bool concerns = std::any_of(report.heads.begin(), report.heads.end(), [&](HeadId id) {
    return std::binary_search(members.begin(), members.end(), id);
  });
  if (!report.gate || !circuit.has_formed() || !concerns) return {};

  circuit.tried_heads = report.heads;
  std::sort(circuit.tried_heads.begin(), circuit.tried_heads.end());
  circuit.tried_at_probe = state.probes;
  ++circuit.attempts;
  if (!std::isnan(report.level)) circuit.level_spent += report.level;
  // Not knowing takes nothing away; an effect above all that not_causal allowed for does.
  const bool refuted = circuit.state == kNotCausal && report.effect_low > circuit.not_causal_high;
  if (report.verdict == kInconclusive && is_verdict(circuit.state) && !refuted) return {};
  circuit.not_causal_high = report.verdict == kNotCausal ? report.effect_high : kNaN;
  const bool changes =
      circuit.state != report.verdict || circuit.judged_heads != circuit.tried_heads;
  circuit.state = report.verdict;
  circuit.judged_heads = circuit.tried_heads;
  if (!changes) return {};
  const int64_t after = report.step > state.now.step ? state.now.step : state.now.after;
  if (report.verdict != kVerified) circuit.verified = {};
  if (report.verdict == kVerified && circuit.verified.step < 0)
    circuit.verified = {report.step, tokens, after};

  Event event;
  event.step = report.step;
  event.tokens = tokens;
  event.wall_time = wall_time;
  event.previous_probe_step = after;
  event.kind = to_string(report.verdict);
  event.pattern = report.pattern;
  event.heads = circuit.judged_heads;
  event.figures = figures_of(report);
  event.rule = setup.rules.name + ": ablation on " + report.metric + "; " + report.reason;
  return {event};
}

std::vector<CircuitReading> CircuitTracker::readings() const {
  const auto& [setup, state] = *impl_;
  std::vector<CircuitReading> readings;
  for (size_t p = 0; p < setup.patterns.size(); ++p) {
    const CircuitLife& circuit = state.circuits[p];
    CircuitReading& reading = readings.emplace_back();
    reading.pattern = setup.patterns[p].name;
    reading.state = circuit.state;
    reading.heads = impl_->members(circuit);
    reading.judged_heads = circuit.judged_heads;
    reading.formed_threshold = setup.threshold(p);
    reading.critical_margin_z = circuit.critical_margin_z;
    reading.best_selectivity = circuit.best_selectivity;
    reading.emerging_step = circuit.emerging.step;
    reading.margin_step = circuit.margin_run.first.step;
    reading.mass_step = circuit.mass_run.first.step;
    reading.formed_step = circuit.formed.step;
    reading.verified_step = circuit.verified.step;
    reading.emerging_tokens = circuit.emerging.tokens;
    reading.formed_tokens = circuit.formed.tokens;
    reading.verified_tokens = circuit.verified.tokens;
  }
  return readings;
}

CircuitState CircuitTracker::head_state(size_t pattern, HeadId head) const {
  const auto& ids = impl_->state.head_ids;
  const auto found = std::find(ids.begin(), ids.end(), head);
  if (pattern >= impl_->setup.patterns.size())
    throw std::invalid_argument("pattern " + std::to_string(pattern) + " of " +
                                std::to_string(impl_->setup.patterns.size()));
  if (found == ids.end()) return kDormant;
  return impl_->state.circuits[pattern].heads[static_cast<size_t>(found - ids.begin())].state;
}

double CircuitTracker::formed_threshold(size_t pattern) const {
  if (pattern >= impl_->setup.patterns.size())
    throw std::invalid_argument("pattern " + std::to_string(pattern) + " of " +
                                std::to_string(impl_->setup.patterns.size()));
  return impl_->setup.threshold(pattern);
}

const CircuitRules& CircuitTracker::rules() const { return impl_->setup.rules; }
int64_t CircuitTracker::probes() const { return impl_->state.probes; }
std::string CircuitTracker::save() const { return serialise(impl_->setup, impl_->state); }
void CircuitTracker::load(const std::string& bytes) { impl_->state = restore(impl_->setup, bytes); }

}  // namespace headscope
