#pragma once

#include <cstdint>

#include "headscope/options.h"

namespace headscope {

/// Decides which steps are measured: a function of (step, tokens) and of the last probe alone.
class Scheduler {
 public:
  struct State {
    int64_t last_probe_step = -1;  ///< -1: no probe yet
    double last_probe_tokens = kNaN;
  };

  explicit Scheduler(const Schedule& schedule) : schedule_(schedule) {}
  bool train_due(int64_t step) const {
    return schedule_.train_every > 0 && step % schedule_.train_every == 0;
  }
  /// Probes are log-spaced in tokens (in steps where tokens are not told), within the two gaps in
  /// steps.
  bool probe_due(int64_t step, double tokens) const;
  void probed(int64_t step, double tokens) { state_ = {step, tokens}; }
  const State& state() const { return state_; }
  void restore(const State& state) { state_ = state; }

 private:
  Schedule schedule_;
  State state_;
};

}  // namespace headscope
