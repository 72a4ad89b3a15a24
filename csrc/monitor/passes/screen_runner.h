#pragma once

#include <vector>

#include "csrc/monitor/analysis/analysis.h"
#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/passes/ablations.h"
#include "csrc/monitor/passes/asked_rows.h"
#include "csrc/monitor/passes/probe_setup.h"
#include "csrc/monitor/taps/row_attention.h"
#include "csrc/monitor/taps/taps.h"
#include "headscope/screen_runner.h"

namespace headscope {

/// Rows and what every head attends to in them.
struct ScreenedRows {
  /// Layers whose queries see the same keys, and what of the rows' targets and controls is left
  /// there.
  struct Group {
    at::Tensor seen;  ///< undefined: all keys
    ScreenRows rows;
    std::vector<size_t> heads;  ///< places in `heads`
  };
  AskedRows asked;
  int64_t span = 0;  ///< T that thresholds scale with
  std::vector<HeadReading> heads;
  std::vector<at::Tensor> weights;  ///< [N * R, T] of each head
  std::vector<Group> groups;
};

/// Monitor::screen. Thread: training, after the analysis thread was drained. It throws.
class ScreenRunner {
 public:
  ScreenRunner(const ProbeSetup& probe, Analysis& analysis, Taps& taps, Ablations& ablations,
               HealthCounters& health)
      : probe_(probe), analysis_(analysis), taps_(taps), ablations_(ablations), health_(health) {}

  /// Results are dated by info.
  ScreenResult run(const ScreenRequest& request, const CaptureInfo& info);

 private:
  /// Runs rows, and as many random ones when their participation ratios are wanted.
  ScreenedRows run_rows(AskedRows asked, ScreenControls controls, bool with_null) const;
  void ablate_members(const ScreenRequest& request, ScreenResult& result) const;
  void keep_calibrations(const ScreenRequest& request, const ScreenResult& result,
                         const CaptureInfo& info) const;

  const ProbeSetup& probe_;
  Analysis& analysis_;
  Taps& taps_;
  Ablations& ablations_;
  HealthCounters& health_;
};

}  // namespace headscope
