#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "csrc/monitor/analysis.h"
#include "csrc/monitor/behaviour.h"
#include "csrc/monitor/call_watch.h"
#include "csrc/monitor/capture.h"
#include "csrc/monitor/health.h"
#include "csrc/monitor/schedule.h"
#include "csrc/monitor/sink_thread.h"
#include "csrc/monitor/worker.h"
#include "headscope/monitor.h"

namespace headscope {

/// Refuses options that cannot be meant (std::invalid_argument naming the value) and fills the
/// default log.
Options checked_options(Options options);

/// The training thread's half of a monitor: what is captured when, and the passes through the
/// user's model.
struct Monitor::Impl {
  /// options: checked.
  Impl(Options options, std::vector<std::shared_ptr<Sink>> sinks,
       std::shared_ptr<HealthCounters> health, std::atomic<Mode>& mode);

  // --- steps (monitor_steps.cpp)
  void begin_step(const StepInfo& info);
  void micro_batch(const at::Tensor& ids);
  void end_step();
  void run_probe(const CaptureInfo& info);
  /// Waits for the earlier measured step; its results are then part of the state.
  void drain();
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
  void self_check(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                  const at::Tensor& z, const AttentionCall& call, const at::Tensor& rows,
                  LayerCapture& own);
  at::Tensor ablate(int64_t layer, const at::Tensor& z) const;
  /// False for calls that no measurement wants: a recompute in a backward, an evaluation under
  /// InferenceMode, another thread's during a pass. Counts what it skips.
  bool wants_call(Mode now);
  /// Gives the capture in progress up.
  void refuse_capture(const std::string& why);

  // --- verification (monitor_verify.cpp)
  /// A metric costs one pass per control set: during training only the one that decides is run.
  enum class Metrics { kGateOnly, kAll };
  std::vector<AblationReport> ablate_circuit(const CircuitTracker::Due& due,
                                             const CaptureInfo& info, Metrics metrics);
  void verify_due(const CaptureInfo& info);
  std::vector<AblationReport> verify_formed();

  Options options;
  std::shared_ptr<HealthCounters> health;
  std::shared_ptr<FaultGate> gate;
  SinkThread sinks;
  Analysis analysis;
  Scheduler scheduler;
  std::atomic<Mode>& mode;
  std::string url;
  bool closed = false;

  std::optional<ProbeHost> host;
  ProbeOptions probe;
  std::shared_ptr<const ProbePlan> plan;
  std::vector<at::Tensor> null_chunks;
  RepeatPlan repeat;
  BehaviourBatches behaviours;

  int64_t next_step = 0;
  CaptureInfo step;             // of the step in progress
  std::vector<at::Tensor> ids;  // told micro-batches of the step in progress
  std::set<int64_t> known_layers;
  std::atomic<int64_t> layer_count{0};         // of known_layers, for report() from any thread
  std::atomic<std::thread::id> pass_thread{};  // the thread that runs a probe or ablation pass
  std::unique_ptr<CallWatch> calls;            // zero-edit attach; null: explicit taps
  Backoff train_backoff, probe_backoff, verify_backoff;

  std::mutex tap_mutex;  // guards what follows; taken only by active taps
  std::unique_ptr<Capture> capture;
  bool capture_failed = false;
  size_t probe_chunk = 0;
  std::map<int64_t, std::vector<int64_t>> ablated;

  Worker worker;  // last: stops before what its jobs use
};

}  // namespace headscope
