#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/taps/call_capture.h"
#include "csrc/monitor/taps/call_watch.h"
#include "csrc/monitor/taps/capture.h"
#include "csrc/monitor/taps/head_ablation.h"
#include "csrc/monitor/taps/row_attention.h"
#include "csrc/monitor/taps/tapped_call.h"
#include "headscope/monitor.h"

namespace headscope {

/// What a thread that calls Monitor::observe touches: the capture in progress and what it is to be
/// of. Threads: as its functions say. The mutex is taken by active taps, never by idle ones.
class Taps {
 public:
  Taps(const Options& options, HealthCounters& health, FaultGate& gate,
       std::atomic<Monitor::Mode>& mode);

  // --- any thread
  /// Monitor::observe.
  at::Tensor observe(const TappedCall& tapped);
  /// Enters the ids of the forward that follows on this thread, while a training step is measured.
  void micro_batch(const at::Tensor& ids);
  /// False for calls that no measurement wants: a recompute in a backward, an evaluation under
  /// InferenceMode, another thread's during a pass. Counts what it skips.
  bool wants_call() { return wants_call(mode_.load(std::memory_order_relaxed)); }
  /// True when this thread has run all `forwards` that it has told; counts what is left out. For a
  /// source that counts whole forwards itself.
  bool told_all(size_t forwards);
  /// Gives the capture in progress up.
  void refuse_capture(const std::string& why);
  /// A training step is measured.
  bool training() const { return mode_.load(std::memory_order_relaxed) == Monitor::Mode::kTrain; }
  /// Nothing is measured.
  bool at_rest() const { return mode_.load(std::memory_order_relaxed) == Monitor::Mode::kIdle; }

  // --- the training thread
  /// Gives a capture in progress up: it was planned for other patterns.
  void set_probe(std::shared_ptr<const ProbePlan> plan, RepeatPlan repeat);
  /// Who is told where measurements and forwards begin; null: nobody, taps are called explicitly.
  void set_watch(std::unique_ptr<CallWatch> watch) { watch_ = std::move(watch); }
  /// Begins the capture of a training step.
  void begin_train(int64_t step);
  /// Ends what is measured.
  void idle() { set_mode(Monitor::Mode::kIdle); }
  /// The capture in progress, which ends with it; null: none, or it was given up.
  std::shared_ptr<Capture> take();

  /// Passes through the user's model on this thread. Whatever happens in the user's forward, the
  /// taps are idle again when it is left.
  class Pass {
   public:
    explicit Pass(Taps& taps);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

    /// Begins the capture of a probe.
    void begin_probe(int64_t context);
    /// What the next forward is: rows of the probe, random tokens, the repeated block.
    void expect_chunk(size_t chunk);
    void expect_null_rows() { taps_.set_mode(Monitor::Mode::kNullProbe); }
    void expect_repeat() { taps_.set_mode(Monitor::Mode::kRepeatProbe); }
    /// From now on z comes back as `ablation` makes it, which must outlive the pass.
    void ablate(HeadAblation& ablation);
    /// From now on `rows` keeps what it asks for of every call; it must outlive the pass.
    void screen(RowAttention& rows);
    /// One forward of the user's, announced to the watch.
    at::Tensor forward(const ForwardFunction& forward, const at::Tensor& tokens);

   private:
    Taps& taps_;
  };

  /// What a probe's capture shows so far, after `chunks` chunks; false when it has been given up,
  /// or lies on a device that would have to be waited for.
  bool ask(size_t chunks, const std::function<bool(const Capture&)>& question);

  // --- a child that fork() made
  void silence() { mode_.store(Monitor::Mode::kIdle, std::memory_order_relaxed); }

 private:
  using Mode = Monitor::Mode;

  bool wants_call(Mode now);
  /// Changes what taps do; tells the watch when that begins or ends a measurement.
  void set_mode(Mode next);
  void begin_capture(int64_t context);
  // With the mutex held.
  void capture_call(Mode now, const TappedCall& tapped);
  /// True for a forward after the last micro-batch that this thread has told: an evaluation within
  /// the step.
  bool beyond_told(int64_t layer) const;

  HealthCounters& health_;
  FaultGate& gate_;
  std::atomic<Mode>& mode_;

  // Set by the training thread; in a pass no other thread's calls are wanted.
  std::unique_ptr<CallWatch> watch_;
  std::atomic<std::thread::id> pass_thread_{};
  size_t probe_chunk_ = 0;
  HeadAblation* ablation_ = nullptr;
  RowAttention* screened_ = nullptr;

  std::mutex mutex_;  // guards what follows
  std::shared_ptr<Capture> capture_;
  bool given_up_ = false;
  TrainSampling sampling_;
  int64_t step_ = 0;
  // Micro-batches told of the step in progress, by the thread that told them.
  std::map<std::thread::id, std::vector<at::Tensor>> ids_;
  std::shared_ptr<const ProbePlan> plan_;
  RepeatPlan repeat_;
};

}  // namespace headscope
