#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/monitor/analysis/analysis.h"
#include "csrc/monitor/analysis/verification.h"
#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/passes/behaviour.h"
#include "csrc/monitor/passes/probe_setup.h"
#include "csrc/monitor/steps/steps.h"
#include "csrc/monitor/taps/taps.h"

namespace headscope {

/// The ablations of circuits: the verification that the budget spreads over steps, and its passes
/// through the user's model. Thread: training, after the analysis thread was drained.
class Ablations {
 public:
  Ablations(const Options& options, Analysis& analysis, Taps& taps, Steps& steps,
            HealthCounters& health, FaultGate& gate);

  /// A circuit waits for its verdict.
  bool due() const { return in_progress_ || analysis_.verification_due(); }
  /// Goes on with the verification that is due, as far as the budget allows.
  void go_on(const ProbeSetup& probe, const CaptureInfo& info);
  /// Verifies every formed circuit now, by every metric; results are dated by info.
  std::vector<AblationReport> verify_formed(const ProbeSetup& probe, const CaptureInfo& info);
  /// Monitor::ablate. Unlike the rest it throws (ablation_runner.cpp).
  AblationResult ablate(const ProbeSetup& probe, const AblationRequest& request);

  const std::optional<Verification>& in_progress() const { return in_progress_; }
  /// Goes on with another one; nullopt: with what is due next.
  void restore(std::optional<Verification> verification) {
    in_progress_ = std::move(verification);
    batch_.reset();  // the probe may be another
  }

 private:
  std::optional<Verification> begin(const CircuitTracker::Due& due, BehaviourMetric metric) const;
  /// Runs passes, all of them or as many as the budget allows; true when it is done.
  bool sit(const ProbeSetup& probe, Verification& verification, bool within_budget);
  /// Enters the verdict.
  AblationReport judge(const Verification& verification, const CaptureInfo& info);

  const ControlOptions controls_;
  const VerdictRule rule_;
  Analysis& analysis_;
  Taps& taps_;
  Steps& steps_;
  HealthCounters& health_;
  FaultGate& gate_;
  std::optional<Verification> in_progress_;
  /// The batch of an attempt, kept from one sitting to the next.
  struct AttemptBatch {
    int64_t attempt;
    BehaviourMetric metric;
    AblationBatch batch;
  };
  std::optional<AttemptBatch> batch_;
};

}  // namespace headscope
