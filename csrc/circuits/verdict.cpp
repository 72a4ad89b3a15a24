#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <stdexcept>

#include "csrc/circuits/text.h"
#include "headscope/ablation.h"

namespace headscope {
namespace {

using circuits::number;

constexpr size_t kFewestExamples = 8;

void validate(const AblationLosses& losses, const ControlSets& controls, const VerdictRule& rule) {
  const size_t examples = losses.baseline.size();
  const auto check = [&](const char* what, size_t size) {
    if (size != examples)
      throw std::invalid_argument("judge_ablation: " + std::to_string(size) + " losses " + what +
                                  ", " + std::to_string(examples) + " without ablation");
  };
  check("with the heads ablated", losses.ablated.size());
  for (const auto& control : losses.controls) check("with a control ablated", control.size());
  if (!losses.upper_bound.empty()) check("with whole layers ablated", losses.upper_bound.size());
  if (losses.controls.size() != controls.sets.size())
    throw std::invalid_argument("judge_ablation: losses of " +
                                std::to_string(losses.controls.size()) + " controls for " +
                                std::to_string(controls.sets.size()) + " control sets");
  if (!(rule.confidence > 0 && rule.confidence < 1) || rule.resamples < 1)
    throw std::invalid_argument("judge_ablation: confidence " + std::to_string(rule.confidence) +
                                " must lie between 0 and 1, resamples " +
                                std::to_string(rule.resamples) + " be 1 or more");
}

double mean(std::span<const double> values) {
  if (values.empty()) return kNaN;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Linear interpolation between order statistics, as numpy's default.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

/// Percentile interval of the mean over examples drawn with replacement.
void bootstrap(std::span<const double> differences, const VerdictRule& rule,
               AblationReport& report) {
  std::mt19937_64 engine(rule.seed);
  const auto examples = differences.size();
  std::vector<double> means(static_cast<size_t>(rule.resamples));
  for (double& resampled : means) {
    double sum = 0;
    for (size_t i = 0; i < examples; ++i)
      sum += differences[static_cast<size_t>(
          (static_cast<unsigned __int128>(engine()) * examples) >> 64)];
    resampled = sum / static_cast<double>(examples);
  }
  std::sort(means.begin(), means.end());
  const double tail = (1 - rule.confidence) / 2;
  report.difference_low = quantile(means, tail);
  report.difference_high = quantile(means, 1 - tail);
}

std::vector<double> differences_of(const AblationLosses& losses) {
  std::vector<double> differences(losses.ablated);
  for (size_t i = 0; i < differences.size(); ++i) {
    double sum = 0;
    for (const auto& control : losses.controls) sum += control[i];
    differences[i] -= sum / static_cast<double>(losses.controls.size());
  }
  return differences;
}

/// On how many controls a verdict rests, and with which compromises.
std::string basis(const AblationReport& report, const ControlSets& controls) {
  const size_t count = report.control_effects.size();
  std::string text =
      "rests on " + std::to_string(count) + (count == 1 ? " control set" : " control sets");
  if (controls.all_that_exist) text += ", all that exist";
  text += " (attainable p " + number(report.attainable_p) + ")";
  if (controls.relaxed) text += "; some control heads are at or above the recall threshold";
  if (controls.short_layers)
    text += "; a layer had too few other heads, so controls are smaller there";
  return text;
}

std::string interval(const AblationReport& report, const VerdictRule& rule) {
  return number(100 * rule.confidence) + " % interval of effect minus controls [" +
         number(report.difference_low) + ", " + number(report.difference_high) + "] nats";
}

/// Empty when every condition of `verified` holds, else the first that does not.
std::string missing_for_verified(const AblationReport& report, const VerdictRule& rule) {
  const double largest =
      *std::max_element(report.control_effects.begin(), report.control_effects.end());
  if (!(report.effect > 0)) return "the effect " + number(report.effect) + " is not above 0";
  if (!(report.difference_low > 0)) return "the interval reaches 0";
  if (!(report.effect >= rule.min_ratio * report.control_mean))
    return "the effect " + number(report.effect) + " is below " + number(rule.min_ratio) +
           " times the control mean " + number(report.control_mean);
  if (!(report.effect > largest))
    return "a control reaches " + number(largest) + ", the effect is " + number(report.effect);
  return {};
}

void decide(const ControlSets& controls, const VerdictRule& rule, AblationReport& report) {
  const std::string missing = missing_for_verified(report, rule);
  const std::string facts = interval(report, rule) + "; " + basis(report, controls);
  if (missing.empty()) {
    report.verdict = CircuitState::kVerified;
    report.reason = "verified: effect " + number(report.effect) + " nats, control mean " +
                    number(report.control_mean) + ", " + facts;
  } else if (report.difference_high < rule.smallest_effect) {
    report.verdict = CircuitState::kNotCausal;
    report.reason = "not causal: the interval lies below the smallest effect of interest, " +
                    number(rule.smallest_effect) + " nats; " + facts;
  } else {
    report.reason = "inconclusive: " + missing + "; " + facts;
  }
}

bool all_finite(const AblationReport& report) {
  return std::isfinite(report.baseline_loss) && std::isfinite(report.ablated_loss) &&
         std::all_of(report.control_effects.begin(), report.control_effects.end(),
                     [](double effect) { return std::isfinite(effect); });
}

}  // namespace

void judge_ablation(const AblationLosses& losses, const ControlSets& controls,
                    const VerdictRule& rule, AblationReport& report) {
  validate(losses, controls, rule);
  report.examples = std::ssize(losses.baseline);
  report.baseline_loss = mean(losses.baseline);
  report.ablated_loss = mean(losses.ablated);
  report.effect = report.ablated_loss - report.baseline_loss;
  report.control_effects.clear();
  for (const auto& control : losses.controls)
    report.control_effects.push_back(mean(control) - report.baseline_loss);
  report.control_sets = controls.sets;
  report.control_mean = mean(report.control_effects);
  report.upper_bound_effect = mean(losses.upper_bound) - report.baseline_loss;
  report.attainable_p = 1 / static_cast<double>(losses.controls.size() + 1);
  report.difference_low = report.difference_high = kNaN;
  report.verdict = CircuitState::kInconclusive;

  if (losses.controls.empty())
    report.reason = "inconclusive: no control set exists in the layers of the heads";
  else if (losses.baseline.size() < kFewestExamples)
    report.reason = "inconclusive: " + std::to_string(losses.baseline.size()) +
                    " examples, a bootstrap needs " + std::to_string(kFewestExamples) + " or more";
  else if (!all_finite(report))
    report.reason = "inconclusive: a loss is not finite";
  else {
    bootstrap(differences_of(losses), rule, report);
    decide(controls, rule, report);
  }
}

}  // namespace headscope
