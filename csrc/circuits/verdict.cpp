#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "csrc/circuits/judging.h"
#include "csrc/circuits/text.h"
#include "headscope/ablation.h"

namespace headscope {
namespace circuits {
namespace {

constexpr Interval kUnknown{kNaN, kNaN};

bool all_finite(std::span<const double> losses) {
  return std::all_of(losses.begin(), losses.end(), [](double loss) { return std::isfinite(loss); });
}

double effect_of(std::span<const double> losses, std::span<const double> baseline) {
  return mean(losses) - mean(baseline.first(std::min(losses.size(), baseline.size())));
}

double control_mean(const AblationLosses& losses) {
  std::vector<double> effects;
  for (const auto& control : losses.controls)
    effects.push_back(effect_of(control, losses.baseline));
  return mean(effects);
}

bool reaches_ratio(const AblationLosses& losses, const VerdictRule& rule) {
  return effect_of(losses.ablated, losses.baseline) >= rule.min_ratio * control_mean(losses);
}

}  // namespace

Interval effect_interval(const AblationLosses& losses, const VerdictRule& rule) {
  const size_t examples = losses.baseline.size();
  if (examples < kFewestExamples || !all_finite(losses.baseline) || !all_finite(losses.ablated))
    return kUnknown;
  return bootstrap_interval(examples, rule.confidence, rule.resamples, rule.seed,
                            [&](std::mt19937_64& engine) {
                              double sum = 0;
                              for (size_t i = 0; i < examples; ++i) {
                                const size_t drawn = draw_below(engine, examples);
                                sum += losses.ablated[drawn] - losses.baseline[drawn];
                              }
                              return sum / static_cast<double>(examples);
                            });
}

Interval difference_interval(const AblationLosses& losses, const VerdictRule& rule) {
  const size_t examples = losses.baseline.size(), sets = losses.controls.size();
  if (sets == 0 || examples < kFewestExamples || !all_finite(losses.ablated)) return kUnknown;
  for (const auto& control : losses.controls)
    if (!all_finite(control)) return kUnknown;
  std::vector<double> weight(sets);
  return bootstrap_interval(examples, rule.confidence, rule.resamples, rule.seed + 1,
                            [&](std::mt19937_64& engine) {
                              std::fill(weight.begin(), weight.end(), 0.0);
                              for (size_t c = 0; c < sets; ++c)
                                weight[draw_below(engine, sets)] += 1 / static_cast<double>(sets);
                              double sum = 0;
                              for (size_t i = 0; i < examples; ++i) {
                                const size_t drawn = draw_below(engine, examples);
                                double difference = losses.ablated[drawn];
                                for (size_t c = 0; c < sets; ++c)
                                  if (weight[c] > 0)
                                    difference -= weight[c] * losses.controls[c][drawn];
                                sum += difference;
                              }
                              return sum / static_cast<double>(examples);
                            });
}

bool has_effect(const AblationLosses& losses, const VerdictRule& rule) {
  return effect_interval(losses, rule).low > rule.smallest_effect;
}

bool beats_controls(const AblationLosses& losses, const VerdictRule& rule) {
  if (losses.controls.empty()) return true;
  return reaches_ratio(losses, rule) && difference_interval(losses, rule).low > 0;
}

int64_t as_strong(const AblationLosses& losses) {
  if (losses.labelled.empty()) return 0;
  const std::span<const double> own(losses.ablated);
  const double effect = effect_of(own.first(losses.labelled[0].size()), losses.baseline);
  // A loss that is not finite counts against the circuit.
  return std::count_if(losses.labelled.begin(), losses.labelled.end(), [&](const auto& set) {
    return !(effect_of(set, losses.baseline) < effect);
  });
}

}  // namespace circuits

namespace {

using namespace circuits;

/// A quarter of the label sets as strong: others of the layers matter as much.
constexpr double kCommon = 0.25;

void validate(const AblationLosses& losses, const ControlSets& controls, const LabelSets& labels,
              const VerdictRule& rule) {
  const size_t examples = losses.baseline.size();
  const auto check = [&](const char* what, size_t size) {
    if (size != examples)
      throw std::invalid_argument("judge_ablation: " + std::to_string(size) + " losses " + what +
                                  ", " + std::to_string(examples) + " without ablation");
  };
  check("with the heads ablated", losses.ablated.size());
  for (const auto& control : losses.controls) check("with a control ablated", control.size());
  for (const auto& set : losses.labelled)
    if (set.size() != losses.labelled[0].size() || set.empty() || set.size() > examples)
      throw std::invalid_argument("judge_ablation: a label set with " + std::to_string(set.size()) +
                                  " losses beside " + std::to_string(losses.labelled[0].size()) +
                                  " of the first, " + std::to_string(examples) +
                                  " without ablation");
  if (losses.controls.size() > controls.sets.size())
    throw std::invalid_argument("judge_ablation: losses of " +
                                std::to_string(losses.controls.size()) + " controls for " +
                                std::to_string(controls.sets.size()) + " control sets");
  if (losses.labelled.size() > labels.sets.size())
    throw std::invalid_argument("judge_ablation: losses of " +
                                std::to_string(losses.labelled.size()) + " label sets for " +
                                std::to_string(labels.sets.size()));
  if (!(rule.confidence > 0 && rule.confidence < 1) || rule.resamples < 1)
    throw std::invalid_argument("judge_ablation: confidence " + std::to_string(rule.confidence) +
                                " must lie between 0 and 1, resamples " +
                                std::to_string(rule.resamples) + " be 1 or more");
}

std::string nats(double value) { return number(value) + " nats"; }

std::string interval_text(double low, double high) {
  return "[" + number(low) + ", " + number(high) + "]";
}

/// Effect, controls and labels in words, as far as they were run.
std::string facts(const AblationReport& report, const ControlSets& controls,
                  const VerdictRule& rule) {
  std::string text = "effect " + nats(report.effect) + ", " + number(100 * rule.confidence) +
                     " % interval " + interval_text(report.effect_low, report.effect_high) +
                     " over " + std::to_string(report.examples) + " examples";
  const size_t sets = report.control_effects.size();
  if (sets > 0) {
    text += "; " + std::to_string(sets) +
            (sets == 1 ? " disjoint control set" : " disjoint control sets") +
            (controls.all_that_exist ? ", all that exist" : "") + ", mean effect " +
            number(report.control_mean) + ", difference " +
            interval_text(report.difference_low, report.difference_high);
    if (controls.relaxed) text += ", some of their heads at or above the recall threshold";
    if (controls.short_layers) text += ", smaller where a layer had too few other heads";
  }
  if (!report.label_effects.empty())
    text += "; random labelling p " + number(report.p_value) + " of " +
            std::to_string(report.label_effects.size()) + " sets, level " + number(report.level);
  return text;
}

std::string what_labels_lack(const LabelSets& labels, const LabelTest& test) {
  if (1 / labels.exist > test.level)
    return "too few heads: of " + number(labels.exist) +
           " sets of this size in these layers the smallest p is " + number(1 / labels.exist) +
           ", the level left " + number(test.level);
  return "a level of " + number(test.level) +
         " is left after earlier attempts, and more label sets than VerdictRule::most_label_sets "
         "would be needed for it";
}

/// The verdict and what it rests on: "verified: ...".
std::pair<CircuitState, std::string> decide(const AblationLosses& losses, const LabelSets& labels,
                                            const LabelTest& test, const VerdictRule& rule,
                                            const AblationReport& report) {
  using enum CircuitState;
  if (report.effect_high < rule.smallest_effect)
    return {kNotCausal, "not causal: the effect lies below the smallest of interest, " +
                            nats(rule.smallest_effect)};
  if (!(report.effect_low > rule.smallest_effect))
    return {kInconclusive, "inconclusive: the effect's interval holds the smallest of interest, " +
                               nats(rule.smallest_effect) + "; more distinct examples narrow it"};
  if (!losses.controls.empty() && !reaches_ratio(losses, rule))
    return {kUnspecific,
            "unspecific: the heads matter, and others of their layers have more "
            "than 1/" +
                number(rule.min_ratio) + " of the effect"};
  if (!losses.controls.empty() && !(report.difference_low > 0))
    return {kInconclusive, "inconclusive: the difference from the controls reaches 0"};
  if (!test.possible()) return {kInconclusive, "inconclusive: " + what_labels_lack(labels, test)};
  switch (test.after(std::ssize(losses.labelled), as_strong(losses))) {
    case LabelTest::Answer::kPassed:
      return {kVerified, "verified"};
    case LabelTest::Answer::kFailed:
      if (report.p_value >= kCommon)
        return {kUnspecific,
                "unspecific: the heads matter, and other sets of their layers matter "
                "as much"};
      return {kInconclusive,
              "inconclusive: other sets of these layers reach the effect, so that "
              "p is above the level"};
    case LabelTest::Answer::kOpen:
      break;
  }
  return {kInconclusive, "inconclusive: random labelling was not finished"};
}

}  // namespace

void judge_ablation(const AblationLosses& losses, const ControlSets& controls,
                    const LabelSets& labels, const LabelTest& test, const VerdictRule& rule,
                    AblationReport& report) {
  validate(losses, controls, labels, rule);
  const auto effect = [&](const std::vector<double>& ablated) {
    return effect_of(ablated, losses.baseline);
  };
  report.examples = std::ssize(losses.baseline);
  report.baseline_loss = mean(losses.baseline);
  report.ablated_loss = mean(losses.ablated);
  report.effect = effect(losses.ablated);
  report.control_effects.clear();
  for (const auto& control : losses.controls) report.control_effects.push_back(effect(control));
  report.control_sets.assign(controls.sets.begin(),
                             controls.sets.begin() + std::ssize(losses.controls));
  report.control_mean = mean(report.control_effects);
  report.label_effects.clear();
  for (const auto& set : losses.labelled) report.label_effects.push_back(effect(set));
  report.labelled_effect = report.p_value = report.level = kNaN;
  if (!losses.labelled.empty()) {
    const std::span<const double> own(losses.ablated);
    report.labelled_effect = effect_of(own.first(losses.labelled[0].size()), losses.baseline);
    report.p_value = (1 + static_cast<double>(as_strong(losses))) /
                     (1 + static_cast<double>(losses.labelled.size()));
  }
  // An attempt costs its level whether it comes to the labelling or not: the conditions before it
  // choose large effects, which are the ones that pass.
  if (test.possible()) report.level = test.level;
  report.single_head_effects.clear();
  for (const auto& head : losses.single_heads) report.single_head_effects.push_back(effect(head));
  report.upper_bound_effect = effect(losses.upper_bound);
  report.attainable_p = 1 / labels.exist;
  const Interval own = effect_interval(losses, rule), apart = difference_interval(losses, rule);
  report.effect_low = own.low;
  report.effect_high = own.high;
  report.difference_low = apart.low;
  report.difference_high = apart.high;
  report.verdict = CircuitState::kInconclusive;

  if (losses.baseline.size() < kFewestExamples) {
    report.reason = "inconclusive: " + std::to_string(losses.baseline.size()) +
                    " distinct examples, an interval needs " + std::to_string(kFewestExamples) +
                    " or more";
  } else if (std::isnan(own.low) ||
             (!losses.controls.empty() && !std::isfinite(report.control_mean))) {
    report.reason = "inconclusive: a loss is not finite";
  } else {
    const auto [verdict, why] = decide(losses, labels, test, rule, report);
    report.verdict = verdict;
    report.reason = why + "; " + facts(report, controls, rule);
  }
}

}  // namespace headscope
