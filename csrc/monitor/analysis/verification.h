#pragma once

#include <string>
#include <vector>

#include "headscope/ablation.h"
#include "headscope/circuits.h"

namespace headscope {

/// The ablation of one circuit, pass by pass: the circuit, each control set, all heads of its
/// layers, and each head alone where there are few controls.
///
/// Under a budget the passes are spread over steps in sittings, and training goes on between them.
/// Each sitting therefore begins with a pass without ablation, and enters every loss as the first
/// baseline plus its own difference: effects compare weights of one step only.
struct Verification {
  size_t pattern = 0;
  BehaviourMetric metric = BehaviourMetric::kNone;
  std::vector<HeadId> heads;
  ControlSets controls;
  std::vector<std::vector<HeadId>> passes;  ///< heads to zero, in order
  std::vector<std::vector<double>> losses;  ///< per example, of the passes done
  std::vector<double> baseline;             ///< of the first sitting

  static Verification of(const CircuitTracker::Due& due, ControlSets controls,
                         BehaviourMetric metric, const std::vector<HeadReading>& readings);

  bool done() const { return losses.size() == passes.size(); }
  const std::vector<HeadId>& next() const { return passes[losses.size()]; }
  /// Losses without ablation at the sitting's weights.
  void sit(std::vector<double> now);
  /// Losses of next().
  void enter(std::vector<double> loss);
  /// Fills all of a report but its step and pattern name. Only when done().
  void judge(const VerdictRule& rule, AblationReport& report) const;

 private:
  std::vector<double> now_;  // baseline of this sitting; empty: it is the first one's
};

}  // namespace headscope
