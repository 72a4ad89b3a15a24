#include "headscope/ablation_measures.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <stdexcept>
#include <string>

#include "csrc/circuits/judging.h"

namespace headscope {

const char* to_string(AblationMeasure measure) {
  switch (measure) {
    case AblationMeasure::kLoss:
      return "loss";
    case AblationMeasure::kTop1:
      return "top1";
    case AblationMeasure::kTop5:
      return "top5";
    case AblationMeasure::kTargetLogit:
      break;
  }
  return "target_logit";
}

const char* to_string(Specificity::State state) {
  switch (state) {
    case Specificity::State::kUnknown:
      return "unknown";
    case Specificity::State::kRatio:
      return "ratio";
    case Specificity::State::kOppositeSign:
      return "opposite_sign";
    case Specificity::State::kNoChange:
      break;
  }
  return "no_change";
}

void compare_passes(const AblationPass& baseline, const VerdictRule& rule, bool intervals,
                    AblationPass& pass) {
  for (const AblationMeasure measure : kAblationMeasures) {
    const std::vector<double>& with = pass.examples[measure];
    if (with.empty()) continue;
    if (with.size() > baseline.examples[measure].size())
      throw std::invalid_argument(
          "compare_passes: " + std::to_string(with.size()) + " values of " + to_string(measure) +
          ", " + std::to_string(baseline.examples[measure].size()) + " without ablation");
    // As the losses of a trial, so that an effect's interval is this one to the bit.
    AblationLosses paired;
    paired.baseline.assign(baseline.examples[measure].begin(),
                           baseline.examples[measure].begin() + std::ssize(with));
    paired.ablated = with;
    MeasuredChange& change = pass.measures[measure];
    change.mean = circuits::mean(with);
    change.change = change.mean - circuits::mean(paired.baseline);
    if (!intervals) continue;
    const circuits::Interval interval = circuits::effect_interval(paired, rule);
    change.low = interval.low;
    change.high = interval.high;
  }
}

Specificity specificity(double change, double control_change) {
  using State = Specificity::State;
  if (!std::isfinite(change) || !std::isfinite(control_change)) return {};
  if (change == 0 || control_change == 0) return {State::kNoChange, kNaN};
  if ((change > 0) != (control_change > 0)) return {State::kOppositeSign, kNaN};
  return {State::kRatio, std::abs(change) / std::abs(control_change)};
}

}  // namespace headscope
