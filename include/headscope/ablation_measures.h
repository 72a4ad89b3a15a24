#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "headscope/ablation.h"
#include "headscope/export.h"
#include "headscope/snapshot.h"

namespace headscope {

/// What is measured of a pass. An example is a row; of several scored positions in it, their mean.
enum class AblationMeasure : uint8_t {
  kLoss,         ///< -log p(target), nats
  kTop1,         ///< 1 when the target has the largest logit (of equal ones the first counts)
  kTop5,         ///< 1 when it is among the five largest
  kTargetLogit,  ///< its logit
};
inline constexpr std::array kAblationMeasures = {AblationMeasure::kLoss, AblationMeasure::kTop1,
                                                 AblationMeasure::kTop5,
                                                 AblationMeasure::kTargetLogit};
/// "loss", "top1", "top5", "target_logit".
HEADSCOPE_API const char* to_string(AblationMeasure measure);

/// One value for each measure.
template <typename T>
struct ByMeasure {
  std::array<T, kAblationMeasures.size()> values{};
  T& operator[](AblationMeasure measure) { return values[static_cast<size_t>(measure)]; }
  const T& operator[](AblationMeasure measure) const {
    return values[static_cast<size_t>(measure)];
  }
};

/// A measure of a pass beside the same examples without ablation.
struct MeasuredChange {
  double mean = kNaN;
  double change = kNaN;  ///< mean - mean without ablation
  double low = kNaN;     ///< bootstrap interval of the change; NaN: fewer than 8 examples,
  double high = kNaN;    ///< a value that is not finite, or not asked for
};

/// One pass with some heads ablated, over all examples or the first so many of them.
struct AblationPass {
  std::vector<HeadId> heads;
  ByMeasure<std::vector<double>> examples;  ///< [n] each; empty: not measured
  ByMeasure<MeasuredChange> measures;
};

/// Fills pass.measures from the examples of both. intervals: of the changes too, paired by example,
/// as the interval of an effect (judge_ablation). Throws std::invalid_argument when the pass has
/// more examples than the baseline.
HEADSCOPE_API void compare_passes(const AblationPass& baseline, const VerdictRule& rule,
                                  bool intervals, AblationPass& pass);

/// How much more a set of heads matters than a matched one.
///
///   ratio = |change| / |control change|     both of the same sign
struct Specificity {
  enum class State : uint8_t {
    kUnknown,       ///< no control, or a change that is not finite
    kRatio,         ///< `ratio` holds
    kOppositeSign,  ///< the control changes the measure the other way: no ratio says anything
    kNoChange,      ///< the control (or the set) changes nothing at all: there is no ratio
  };
  State state = State::kUnknown;
  double ratio = kNaN;
};
/// "unknown", "ratio", "opposite_sign", "no_change".
HEADSCOPE_API const char* to_string(Specificity::State state);
/// Never divides by 0 or by a number of the other sign.
HEADSCOPE_API Specificity specificity(double change, double control_change);

}  // namespace headscope
