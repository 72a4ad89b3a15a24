#pragma once

#include <string>

#include "headscope/monitor.h"
#include "plugin/examples/attention_only_lm/demo_options.h"
#include "plugin/examples/attention_only_lm/training_result.h"

namespace headscope::demo {

/// What the closing report and the summary are made of. `run` is empty when nobody watched.
struct DemoOutcome {
  TrainingResult training;
  RunReport run;
  double monitor_seconds = 0;  ///< wall time of the training thread inside the monitor
  bool resumable = false;      ///< the run directory holds a checkpoint
};

/// Seconds the training thread spent in the monitor: taps, probes, ablations and waiting.
double monitor_seconds(const Health& health);

/// The closing report: what formed, when, what led it and by how much, the ablation table, where
/// the history lies.
std::string closing_report(const DemoOptions& options, const DemoOutcome& outcome);

/// Writes the outcome as JSON (docs/demo.md lists the fields); figures that do not exist are null.
/// Throws std::runtime_error naming path and cause.
void write_summary(const DemoOptions& options, const DemoOutcome& outcome);

}  // namespace headscope::demo
