#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/steps/budget.h"
#include "csrc/monitor/steps/schedule.h"
#include "csrc/monitor/taps/capture_info.h"
#include "headscope/monitor.h"

namespace headscope {

/// The run's steps: the one in progress, what is due at it, and what of that the budget lets run.
/// Thread: training.
class Steps {
 public:
  Steps(const Options& options, HealthCounters& health, FaultGate& gate);

  void begin(const StepInfo& info);
  const CaptureInfo& current() const { return current_; }
  void set_loss(double loss) { current_.loss = loss; }

  /// What is to run at the current step.
  struct Due {
    bool probe = false, train = false, verification = false;
    bool any() const { return probe || train || verification; }
  };
  /// By the schedule alone, which asks for verifications where it asks for probes.
  Due scheduled(bool has_probe) const;
  /// What of it may run now under a budget; what may not is counted. analysis_idle: nothing would
  /// wait for the analysis thread. verification_due: a circuit waits for its verdict.
  Due within_budget(const Due& scheduled, bool analysis_idle, bool verification_due);
  Budget& budget() { return budget_; }

  /// The measured training step begins or ends: what its taps cost meanwhile is entered.
  void train_begins();
  void train_ends();
  /// The probe of the current step has run, or was left out.
  void probed() { scheduler_.probed(current_.step, current_.tokens); }
  /// The record of a probe that runs now and was due earlier; nothing for one that is in time.
  std::optional<Event> take_deferral();
  /// The analysis thread works for this from now on.
  void analysing(Source source) { analysing_probe_ = source == Source::kProbe; }
  /// Says once that an integral over tokens needs them.
  void warn_without_tokens();

  Backoff& train_backoff() { return backoffs_[0]; }
  Backoff& probe_backoff() { return backoffs_[1]; }
  Backoff& verify_backoff() { return backoffs_[2]; }

  /// As numbers, for the run's state.
  struct Saved {
    std::vector<double> schedule, budget;
  };
  Saved save() const;
  /// What a saved run stood at.
  struct State {
    int64_t next_step;
    Scheduler::State schedule;
    double tokens;
    int64_t deferred_since;
    std::array<std::pair<int64_t, int64_t>, 3> backoffs;
    Budget budget;
  };
  /// Throws std::runtime_error on other numbers.
  State decoded(const Saved& saved) const;
  void restore(State state);

 private:
  /// Enters what the analysis thread took since it was last asked.
  void charge_analysis();

  const Schedule schedule_;
  const std::function<double()> clock_;
  const IntegralAxis axis_;
  HealthCounters& health_;
  FaultGate& gate_;
  Scheduler scheduler_;
  Budget budget_;
  std::array<Backoff, 3> backoffs_;
  CaptureInfo current_;
  int64_t next_step_ = 0;
  int64_t deferred_since_ = -1;            // step at which the probe now put off was due
  uint64_t tap_nanoseconds_at_begin_ = 0;  // of the measured training step
  bool analysing_probe_ = false;           // the analysis thread's last job
  double charged_cpu_ = 0;  // seconds of the analysis thread that the budget knows of
};

/// Seconds since the Unix epoch.
double wall_clock();

}  // namespace headscope
