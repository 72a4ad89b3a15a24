#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <vector>

#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/taps/taps.h"
#include "csrc/probe/probe_plan.h"
#include "csrc/probe/repeat_plan.h"
#include "headscope/monitor.h"
#include "headscope/probe_batch.h"

namespace headscope {

/// The probe as it was set: the user's model, what is run through it, and what is asked of it.
/// Never changed once made. Thread: training; the plan is shared with the analysis and the taps.
struct ProbeSetup {
  /// Throws std::invalid_argument naming value and fix.
  ProbeSetup(ProbeHost host, ProbeOptions options);

  /// What two probes must share for their readings to be compared, in words.
  std::string definition() const;

  /// Runs the probe: its rows, the random tokens and the repeated block. Null: a fault, or the
  /// capture was given up. Layers that did not see all rows are left out.
  std::shared_ptr<Capture> run(Taps& taps, HealthCounters& health, FaultGate& gate) const;

  ProbeHost host;
  ProbeOptions options;  ///< resolved
  std::shared_ptr<const ProbePlan> plan;
  std::vector<at::Tensor> null_chunks;  ///< random tokens; empty without ProbeOptions::pr_null
  RepeatPlan repeat;
};

}  // namespace headscope
