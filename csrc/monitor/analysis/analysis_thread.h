#pragma once

#include <memory>

#include "csrc/monitor/analysis/analysis.h"
#include "csrc/monitor/analysis/worker.h"
#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/taps/capture.h"
#include "csrc/monitor/taps/capture_info.h"

namespace headscope {

/// Gives captures to the analysis, one at a time, on a thread of its own: that thread's while a job
/// runs. Thread of the functions: training; drain() may be called from any.
class AnalysisThread {
 public:
  AnalysisThread(Analysis& analysis, const Options& options, HealthCounters& health,
                 FaultGate& gate);

  /// The earlier capture must be analysed: drain().
  void submit(std::shared_ptr<Capture> taken, const CaptureInfo& info, Source source);
  /// Waits for the capture that is being analysed; its results are then part of the state.
  void drain() { worker_.drain(); }
  /// True when drain() would not wait.
  bool idle() { return worker_.idle(); }

 private:
  Analysis& analysis_;
  HealthCounters& health_;
  FaultGate& gate_;
  const bool eigenvalues_on_device_;
  Worker worker_;  // last: stops before what its jobs use
};

}  // namespace headscope
