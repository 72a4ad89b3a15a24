#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "csrc/monitor/analysis/analysis.h"
#include "csrc/monitor/analysis/verification.h"
#include "csrc/monitor/analysis/worker.h"
#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/edge/sink_thread.h"
#include "csrc/monitor/passes/behaviour.h"
#include "csrc/monitor/steps/budget.h"
#include "csrc/monitor/steps/schedule.h"
#include "csrc/monitor/taps/call_watch.h"
#include "csrc/monitor/taps/capture.h"
#include "headscope/monitor.h"
#include "headscope/process.h"

namespace headscope {

/// Refuses a process that this copy of headscope cannot work in and options that cannot be meant
/// (std::invalid_argument naming the value), and fills the default log.
Options checked_options(Options options);

/// The training thread's half of a monitor: what is captured when, and the passes through the
/// user's model.
struct Monitor::Impl {
  /// options: checked.
  Impl(Options options, std::vector<std::shared_ptr<Sink>> sinks,
       std::shared_ptr<HealthCounters> health, std::atomic<Mode>& mode);

  /// Throws std::invalid_argument in a forked child.
  void refuse_inherited() const;

  // --- steps (monitor_steps.cpp)
  void begin_step(const StepInfo& info);
  void micro_batch(const at::Tensor& ids);
  void end_step();
  void run_probe(const CaptureInfo& info);
  /// Hands a capture to the analysis thread, which drain() has found idle.
  void analyse(std::shared_ptr<Capture> taken, const CaptureInfo& info, Source source);
  /// Withholds the attention figures of layers whose self-check failed, and says so. On the
  /// analysis thread.
  void judge_self_checks(Capture& taken) const;
  /// Waits for the earlier measured step; its results are then part of the state.
  void drain();
  /// Whether what is due may run now; what may not is counted.
  struct Due {
    bool probe, train, verification;
  };
  Due within_budget(const CaptureInfo& info, bool probe_due, bool train_due);
  /// Enters what the analysis thread took since it was last asked.
  void charge_analysis();
  /// Records that a probe ran later than it was due.
  void record_deferral(const CaptureInfo& info);
  /// Changes what taps do; tells the call watch when that begins or ends a measurement.
  void set_mode(Mode next);
  /// One forward of the user's, announced to the call watch.
  at::Tensor forward(const at::Tensor& tokens);
  /// Layers known to report and missing from a capture: counted and warned of.
  void count_missing(const Capture& capture, const char* where);

  // --- taps (monitor_taps.cpp)
  at::Tensor observe(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& z, const AttentionCall& call);
  void capture_train(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& z, const AttentionCall& call);
  void capture_probe(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& z, const AttentionCall& call);
  /// Dropout hides what the call was told.
  bool wants_self_check(const AttentionCall& call) const {
    return options.self_check && call.dropout == 0;
  }
  at::Tensor ablate(int64_t layer, const at::Tensor& z) const;
  /// False for calls that no measurement wants: a recompute in a backward, an evaluation under
  /// InferenceMode, another thread's during a pass. Counts what it skips.
  bool wants_call(Mode now);
  /// True for a forward after the last micro-batch that this thread has told: an evaluation within
  /// the step. Called under tap_mutex.
  bool beyond_told(int64_t layer);
  /// The same for a source that counts whole forwards itself; counts what it leaves out.
  bool told_all(size_t forwards);
  /// Gives the capture in progress up.
  void refuse_capture(const std::string& why);

  // --- verification (monitor_verify.cpp)
  std::optional<Verification> begin_verification(const CircuitTracker::Due& due,
                                                 BehaviourMetric metric) const;
  /// Runs passes, all of them or as many as the budget allows; true when it is done.
  bool sit_verification(Verification& verification, bool within_budget);
  /// Enters the verdict.
  AblationReport judged(const Verification& verification, const CaptureInfo& info);
  /// Goes on with the verification that is due, if one is.
  void verify_due(const CaptureInfo& info);
  std::vector<AblationReport> verify_formed();

  /// True in a child that fork() made: its one thread has none of ours, and what they had locked
  /// stays locked. Everything is inert there.
  bool inherited() const { return in_child.load(std::memory_order_relaxed); }

  Options options;
  std::shared_ptr<HealthCounters> health;
  std::shared_ptr<FaultGate> gate;
  SinkThread sinks;
  Analysis analysis;
  Scheduler scheduler;
  Budget budget;
  std::atomic<Mode>& mode;
  std::atomic<bool> in_child{false};
  ForkRegistration forks = on_fork_child([this] {
    in_child.store(true, std::memory_order_relaxed);
    mode.store(Mode::kIdle, std::memory_order_relaxed);
  });
  std::string url;
  bool closed = false;

  std::optional<ProbeHost> host;
  ProbeOptions probe;
  std::shared_ptr<const ProbePlan> plan;
  std::vector<at::Tensor> null_chunks;
  RepeatPlan repeat;
  BehaviourBatches behaviours;

  std::optional<Verification> verifying;  // spread over steps by the budget

  int64_t next_step = 0;
  uint64_t open_step = 0;               // serial of the scope in progress
  uint64_t tap_nanoseconds_before = 0;  // at the start of the capture in progress
  bool analysed_probe = false;          // the worker's last job
  double charged_cpu = 0;               // seconds of the analysis thread that the budget knows of
  int64_t deferred_since = -1;          // step at which the probe now put off was due
  CaptureInfo step;                     // of the step in progress
  // Micro-batches told of the step in progress, by the thread that told them.
  std::map<std::thread::id, std::vector<at::Tensor>> ids;
  std::set<int64_t> known_layers;
  std::atomic<int64_t> layer_count{0};         // of known_layers, for report() from any thread
  std::atomic<std::thread::id> pass_thread{};  // the thread that runs a probe or ablation pass
  std::unique_ptr<CallWatch> calls;            // zero-edit attach; null: explicit taps
  Backoff train_backoff, probe_backoff, verify_backoff;
  std::array<Backoff*, 3> backoffs() { return {&train_backoff, &probe_backoff, &verify_backoff}; }

  std::mutex tap_mutex;  // guards what follows; taken only by active taps
  std::unique_ptr<Capture> capture;
  bool capture_failed = false;
  size_t probe_chunk = 0;
  std::map<int64_t, std::vector<int64_t>> ablated;

  Worker worker;  // last: stops before what its jobs use
};

}  // namespace headscope
