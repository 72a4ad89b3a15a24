#pragma once

#include <memory>

#include "csrc/monitor/edge/host_guard.h"
#include "headscope/monitor.h"

namespace headscope {

/// While one lives the user's model is in evaluation without grad; everything is put back after.
/// Thread: training.
class HostEvaluation {
 public:
  explicit HostEvaluation(const ProbeHost& host)
      : evaluation_(host.enter_evaluation ? host.enter_evaluation() : nullptr) {}

 private:
  const HostGuard guard_;
  const std::shared_ptr<void> evaluation_;
};

}  // namespace headscope
