#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "csrc/monitor/analysis/analysis.h"
#include "csrc/monitor/analysis/analysis_thread.h"
#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/edge/sink_thread.h"
#include "csrc/monitor/passes/ablations.h"
#include "csrc/monitor/passes/probe_setup.h"
#include "csrc/monitor/steps/steps.h"
#include "csrc/monitor/taps/known_layers.h"
#include "csrc/monitor/taps/taps.h"
#include "headscope/monitor.h"
#include "headscope/process.h"

namespace headscope {

/// A monitor put together of its parts. Each says which thread it belongs to; what is here is the
/// training thread's.
struct Monitor::Impl {
  /// options: checked.
  Impl(Options options, std::vector<std::shared_ptr<Sink>> sinks,
       std::shared_ptr<HealthCounters> health, std::atomic<Mode>& mode);

  void set_probe(ProbeSetup setup);
  void begin_step(const StepInfo& info);
  void end_step();
  std::vector<AblationReport> verify();
  AblationResult ablate(const AblationRequest& request);
  ScreenResult screen(const ScreenRequest& request);
  StateDict state_dict();
  void load_state_dict(const StateDict& state);
  void close(double timeout_seconds);

  /// What is due at the step in progress and may run.
  Steps::Due due();
  void run_probe();
  /// Hands a measurement of the step in progress to the analysis thread, which is idle.
  void analyse(std::shared_ptr<Capture> taken, Source source);
  /// Waits for the earlier measured step, on the training's time.
  void drain();

  /// True in a child that fork() made: its one thread has none of ours, and what they had locked
  /// stays locked. Everything is inert there.
  bool inherited() const { return in_child.load(std::memory_order_relaxed); }
  /// Throws std::invalid_argument where passes of the user's own cannot run now; `what` asks.
  void refuse_now(const std::string& what) const;
  /// Throws std::invalid_argument in a forked child.
  void refuse_inherited() const;

  const Options options;
  const std::shared_ptr<HealthCounters> health;
  const std::shared_ptr<FaultGate> gate;
  SinkThread sinks;
  Analysis analysis;
  Taps taps;
  KnownLayers layers;
  Steps steps;
  std::optional<ProbeSetup> probe;
  Ablations ablations;

  std::atomic<bool> in_child{false};
  ForkRegistration forks = on_fork_child([this] {
    in_child.store(true, std::memory_order_relaxed);
    taps.silence();
  });
  std::string url;
  uint64_t open_step = 0;  // serial of the scope in progress
  bool step_is_open = false;
  bool closed = false;

  AnalysisThread analysis_thread;  // last: stops before what its jobs use
};

}  // namespace headscope
