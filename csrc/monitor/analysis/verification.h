#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "headscope/ablation.h"
#include "headscope/circuits.h"

namespace headscope {

/// The ablation of one circuit in the monitor: which attempt on which pattern, and its trial.
///
/// Under a budget the passes are spread over steps in sittings, and training goes on between them.
/// Each sitting therefore begins with a pass without ablation, and enters every loss as the first
/// baseline plus its own difference: effects compare weights of one step only. Label sets are
/// ranked against the circuit: a later sitting ablates it again, and enters theirs as the circuit's
/// first losses plus their difference from it.
class Verification {
 public:
  Verification() = default;
  Verification(size_t pattern_number, BehaviourMetric judged_by, int64_t attempt_number,
               AblationTrial drawn)
      : pattern(pattern_number),
        metric(judged_by),
        attempt(attempt_number),
        trial(std::move(drawn)) {}

  size_t pattern = 0;
  BehaviourMetric metric = BehaviourMetric::kNone;
  int64_t attempt = 0;  ///< chooses the held-out rows
  AblationTrial trial;

  /// Losses without ablation at the sitting's weights.
  void sit(std::vector<double> now);
  /// Losses of the pass that trial.next() names.
  void enter(std::vector<double> losses, const VerdictRule& rule);
  /// The next pass is a label set, and the circuit's own losses at this sitting's weights are not
  /// known; run the circuit on the same examples first.
  bool wants_own() const;
  void enter_own(std::vector<double> losses) { own_ = std::move(losses); }

 private:
  std::vector<double> now_;  // baseline of this sitting; empty: it is the first one's
  std::vector<double> own_;  // the circuit's losses in this sitting; empty: not run
};

}  // namespace headscope
