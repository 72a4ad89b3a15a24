#include <cmath>
#include <stdexcept>

#include "csrc/circuits/circuit_state.h"
#include "csrc/circuits/text.h"
#include "headscope/screen.h"

namespace headscope::circuits {
namespace {

Answer answer(bool yes) { return yes ? Answer::kYes : Answer::kNo; }

Answer at_least(double value, double floor) {
  return std::isnan(value) ? Answer::kUnknown : answer(value >= floor);
}

Answer both(Answer a, Answer b) {
  if (a == Answer::kNo || b == Answer::kNo) return Answer::kNo;
  return a == Answer::kYes && b == Answer::kYes ? Answer::kYes : Answer::kUnknown;
}

Answer either(Answer a, Answer b) { return negated(both(negated(a), negated(b))); }

/// A test's answer about one head, joined with the effect floor.
Answer beats(const std::optional<NullTestResult>& test, size_t head, Answer effect) {
  if (!test || std::isnan(test->z[head])) return Answer::kUnknown;
  return both(answer(test->beats[head]), effect);
}

/// Which tests decide `emerging` where these exist.
struct Deciding {
  bool margin = false;
  bool mass = false;
};

Deciding deciding(Precursor precursor, const PatternNulls& nulls) {
  if (precursor == Precursor::kSelectivity) return {};
  const bool margin = nulls.margin.has_value(), mass = nulls.mass.has_value();
  if (precursor == Precursor::kMargin && margin) return {true, false};
  if (precursor == Precursor::kMass && mass) return {false, true};
  return {margin, mass};
}

std::string test_text(const char* what, const NullTestResult& test) {
  return std::string(what) + " z >= critical z " + number(test.critical_z) +
         " (over all heads, family-wise p " + number(test.p_value) + ", level " +
         number(test.alpha) + ")";
}

std::string emerging_text(const CircuitRules& rules, const PatternNulls& nulls) {
  const std::string selectivity = "selectivity >= " + number(rules.emerging_selectivity);
  const auto [margin, mass] = deciding(rules.precursor, nulls);
  std::string text;
  if (margin)
    text = test_text("margin", *nulls.margin) +
           " and margin >= " + number(std::log(rules.emerging_selectivity)) + " nats or " +
           selectivity + ", and selectivity >= " + number(std::sqrt(rules.emerging_selectivity));
  if (mass)
    text += (margin ? ", or " : "") + test_text("mass", *nulls.mass) + " and " + selectivity;
  if (margin || mass) return text;
  return selectivity + (rules.precursor == Precursor::kSelectivity ? "" : " (no null was drawn)");
}

bool needs_class(const TrackerSetup& setup, size_t pattern) {
  const std::string& name = setup.patterns[pattern].name;
  return setup.rules.previous_token_by_class &&
         (name == "previous-token" || name == "previous_token");
}

double class_threshold(const TrackerSetup& setup, size_t pattern) {
  const CircuitRules& rules = setup.rules;
  return rules.scale_to_context ? scaled_threshold(rules.class_at_256, setup.contexts[pattern])
                                : rules.class_at_256;
}

}  // namespace

double TrackerSetup::threshold(size_t pattern) const {
  const double at_256 = patterns[pattern].formed_at_256;
  return rules.scale_to_context ? scaled_threshold(at_256, contexts[pattern]) : at_256;
}

void validate_rules(const CircuitRules& rules) {
  const auto require = [](bool holds, const char* name, double value, const char* range) {
    if (!holds)
      throw std::invalid_argument(std::string("circuit rule ") + name + " is " + number(value) +
                                  "; it must be " + range);
  };
  require(rules.alpha > 0 && rules.alpha < 1, "alpha", rules.alpha, "above 0 and below 1");
  require(rules.planned_probes >= 1, "planned_probes", static_cast<double>(rules.planned_probes),
          "1 or more");
  require(rules.probes_in_a_row >= 1, "probes_in_a_row", static_cast<double>(rules.probes_in_a_row),
          "1 or more");
  require(rules.emerging_selectivity > 0 && std::isfinite(rules.emerging_selectivity),
          "emerging_selectivity", rules.emerging_selectivity, "finite and above 0");
  require(rules.mass_floor >= 0 && rules.mass_floor < 1, "mass_floor", rules.mass_floor,
          "0 or more and below 1");
  require(rules.leave_fraction > 0 && rules.leave_fraction <= 1, "leave_fraction",
          rules.leave_fraction, "above 0 and at most 1");
  require(rules.class_at_256 > 0 && std::isfinite(rules.class_at_256), "class_at_256",
          rules.class_at_256, "finite and above 0");
  require(rules.settle_probes >= 0, "settle_probes", static_cast<double>(rules.settle_probes),
          "0 or more");
  require(rules.retry_probes >= 1, "retry_probes", static_cast<double>(rules.retry_probes),
          "1 or more");
}

PatternNulls nulls_of(const ProbeEvidence& probe, size_t pattern) {
  return probe.nulls.empty() ? PatternNulls{} : probe.nulls[pattern];
}

HeadEvidence weigh(const TrackerSetup& setup, const ProbeEvidence& probe, size_t pattern,
                   size_t head) {
  const HeadReading& reading = probe.heads[head];
  if (!reading.finite) return {};
  const PatternReading& figures = reading.patterns[pattern];
  const CircuitRules& rules = setup.rules;
  const PatternNulls* nulls = probe.nulls.empty() ? nullptr : &probe.nulls[pattern];
  HeadEvidence evidence;
  const Answer selective = at_least(figures.selectivity, rules.emerging_selectivity);
  if (nulls) {
    const Answer effect =
        both(at_least(figures.selectivity, std::sqrt(rules.emerging_selectivity)),
             either(at_least(figures.margin, std::log(rules.emerging_selectivity)), selective));
    evidence.margin = beats(nulls->margin, head, effect);
    evidence.mass = beats(nulls->mass, head, selective);
  }
  const auto [margin, mass] = nulls ? deciding(rules.precursor, *nulls) : Deciding{};
  if (margin && mass)
    evidence.emerging = either(evidence.margin, evidence.mass);
  else if (margin || mass)
    evidence.emerging = margin ? evidence.margin : evidence.mass;
  else if (!nulls || rules.precursor == Precursor::kSelectivity)
    evidence.emerging = selective;

  if (std::isnan(figures.selectivity)) return evidence;
  const double threshold = setup.threshold(pattern);
  const bool of_class = !needs_class(setup, pattern) ||
                        best_pattern(reading.patterns, class_threshold(setup, pattern)) == pattern;
  const auto reaches = [&](double part) {
    const bool enough_mass = std::isnan(figures.mass) || figures.mass >= part * rules.mass_floor;
    return figures.selectivity >= part * threshold && enough_mass && of_class;
  };
  evidence.formed = answer(reaches(1));
  evidence.left = answer(!reaches(rules.leave_fraction));
  return evidence;
}

std::string rule_text(const TrackerSetup& setup, const ProbeEvidence& probe, size_t pattern,
                      CircuitState state) {
  const CircuitRules& rules = setup.rules;
  const double threshold = setup.threshold(pattern);
  const std::string at_256 = number(setup.patterns[pattern].formed_at_256);
  std::string text = rules.name + ": ";
  switch (state) {
    case CircuitState::kEmerging:
      text += emerging_text(rules, nulls_of(probe, pattern));
      break;
    case CircuitState::kDormant:
      text += "no longer " + emerging_text(rules, nulls_of(probe, pattern));
      break;
    case CircuitState::kFormed:
      text += "selectivity >= " + number(threshold) +
              " at T = " + std::to_string(setup.contexts[pattern]);
      if (rules.scale_to_context) text += " (" + at_256 + " at T = 256)";
      if (rules.mass_floor > 0) text += " and mass, where measured, >= " + number(rules.mass_floor);
      if (needs_class(setup, pattern)) text += " and the best class";
      break;
    default:
      text += "selectivity < " + number(rules.leave_fraction * threshold);
      if (rules.mass_floor > 0)
        text += " or mass < " + number(rules.leave_fraction * rules.mass_floor);
      if (needs_class(setup, pattern)) text += " or another class";
  }
  return text + ", " + std::to_string(rules.probes_in_a_row) +
         (rules.probes_in_a_row == 1 ? " probe" : " probes in a row");
}

std::map<std::string, double> figures_of(const TrackerSetup& setup, const TrackerState& state,
                                         const ProbeEvidence& probe, size_t pattern, size_t head) {
  const HeadReading& reading = probe.heads[head];
  const PatternReading& figures = reading.patterns[pattern];
  const PatternNulls nulls = nulls_of(probe, pattern);
  std::map<std::string, double> all = {
      {"selectivity", figures.selectivity},
      {"mass", figures.mass},
      {"margin", figures.margin},
      {"participation_ratio", reading.participation_ratio},
      {"threshold", setup.threshold(pattern)},
      {"threshold_at_256", setup.patterns[pattern].formed_at_256},
      {"probe", static_cast<double>(state.probes)},
      {"stretch", static_cast<double>(state.stretch)},
  };
  if (nulls.margin) {
    all["margin_z"] = nulls.margin->z[head];
    all["margin_excess"] = nulls.margin->excess[head];
    all["critical_z"] = nulls.margin->critical_z;
    all["p_value"] = nulls.margin->p_value;
    all["alpha"] = nulls.margin->alpha;
    all["null_rows"] = static_cast<double>(nulls.margin->rows);
  }
  if (nulls.mass) {
    all["mass_z"] = nulls.mass->z[head];
    all["mass_critical_z"] = nulls.mass->critical_z;
    all["mass_p_value"] = nulls.mass->p_value;
    all["mass_alpha"] = nulls.mass->alpha;
  }
  std::erase_if(all, [](const auto& figure) { return std::isnan(figure.second); });
  return all;
}

std::map<std::string, double> figures_of(const AblationReport& report) {
  std::map<std::string, double> all = {
      {"effect", report.effect},
      {"effect_low", report.effect_low},
      {"effect_high", report.effect_high},
      {"baseline_loss", report.baseline_loss},
      {"ablated_loss", report.ablated_loss},
      {"control_mean", report.control_mean},
      {"controls", static_cast<double>(report.control_effects.size())},
      {"difference_low", report.difference_low},
      {"difference_high", report.difference_high},
      {"p_value", report.p_value},
      {"level", report.level},
      {"label_sets", static_cast<double>(report.label_effects.size())},
      {"upper_bound_effect", report.upper_bound_effect},
      {"attainable_p", report.attainable_p},
      {"examples", static_cast<double>(report.examples)},
  };
  std::erase_if(all, [](const auto& figure) { return std::isnan(figure.second); });
  return all;
}

}  // namespace headscope::circuits
