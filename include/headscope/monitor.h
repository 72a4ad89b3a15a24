#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/measure.h"
#include "headscope/options.h"
#include "headscope/probe_batch.h"
#include "headscope/snapshot.h"

namespace torch::nn {
class Module;
}

namespace headscope {

/// What begin_step is told.
struct StepInfo {
  /// Optimizer steps done so far. Default: counted from 0, or from the loaded state.
  std::optional<int64_t> step = {};
  /// Training tokens before this step. NaN: not known; integrals then need IntegralAxis::kStep.
  double tokens_seen = kNaN;
};

/// Runs tokens [N, T] i64 through the user's model and returns the logits [N, T, V], V the size of
/// the vocabulary. An undefined tensor: there are no losses, so no ablation verdicts.
using ForwardFunction = std::function<at::Tensor(const at::Tensor& tokens)>;

/// How the probe may use the user's model. set_probe(torch::nn::Module&, ...) makes one.
struct ProbeHost {
  ForwardFunction forward;
  /// Puts the model into evaluation mode. Releasing the handle restores what was there before.
  std::function<std::shared_ptr<void>()> enter_evaluation;
  /// Runs the tokens as far as the last attention layer: for passes whose logits nobody reads,
  /// without the projection onto the vocabulary. What it returns is ignored. Empty: forward.
  ForwardFunction attention_forward = {};
};

/// The run so far, for reports and tests.
struct RunReport {
  std::vector<CircuitReading> circuits;
  std::vector<Event> events;  ///< since the run's start or the loaded state's, oldest first
  std::vector<AblationReport> ablations;
  std::shared_ptr<const Snapshot> last_probe;
  std::shared_ptr<const Snapshot> last_train;
  Health health;
  int64_t layers = 0;  ///< distinct layers that have reported
};

/// State as named tensors (uint8), fit for torch::save beside the user's checkpoint.
using StateDict = std::map<std::string, at::Tensor>;

/// One attention call of a model's forward, as Monitor::attach_zero_edit saw it.
struct AttentionSite {
  int64_t layer = -1;   ///< its number among the measured calls, in call order; -1: not measured
  std::string refusal;  ///< why it is not measured; empty: it is
  std::string kind;     ///< "scaled_dot_product_attention" or "bmm-softmax-bmm"
  int64_t query_heads = 0, key_heads = 0, head_dim = 0, value_dim = 0;
};

class Monitor;
struct AblationRequest;
struct AblationResult;
struct ScreenRequest;
struct ScreenResult;
struct HealthCounters;

/// One optimizer step: made by Monitor::begin_step, ends when it goes out of scope. Movable. Made
/// and destroyed on the training thread; nothing here throws.
class StepScope {
 public:
  HEADSCOPE_API StepScope(StepScope&& other) noexcept;
  StepScope& operator=(StepScope&&) = delete;
  HEADSCOPE_API ~StepScope();
  /// Tells the token ids [B, T] i64 of the forward that follows on this thread. Needed for the
  /// patterns induction and duplicate-token on training text. Tell every micro-batch of a step or
  /// none: once some are told, forwards beyond them count as evaluations and are left out. Any
  /// thread that runs forwards.
  HEADSCOPE_API void micro_batch(const at::Tensor& ids);
  /// Tells the step's loss, in nats, for the record.
  HEADSCOPE_API void loss(double value);

 private:
  friend class Monitor;
  StepScope(Monitor* monitor, uint64_t step) : monitor_(monitor), step_(step) {}
  Monitor* monitor_;
  uint64_t step_;  // a scope that the next step has replaced ends nothing
};

/// Watches one model. Several may live in a process; taps belong to the monitor they call.
///
/// Threads
///   training thread  attach, set_probe, attach_zero_edit, detach_zero_edit, begin_step, StepScope,
///                    verify, ablate, screen, state_dict, load_state_dict, close
///   any thread       observe, StepScope::micro_batch, warn_once, report, health, url
/// In a child that fork() makes the inherited monitor does nothing (set_probe, ablate, screen,
/// state_dict and load_state_dict throw); attach another one there.
///
/// Errors: attach, set_probe, attach_zero_edit and load_state_dict throw on a configuration that
/// cannot work, ablate and screen on whatever fails. Nothing else throws: a fault is caught,
/// counted in Health::errors, logged the first time for each kind, and that measurement pauses for
/// a while and comes back.
class Monitor {
 public:
  /// Attaches a monitor with the sinks that the options name. Throws std::invalid_argument on
  /// options out of range, when the process holds a second copy of headscope, and when torch is of
  /// another release than the library was built for (docs/packaging.md). A run directory that
  /// cannot be written or a server that cannot start is logged and counted; the run goes on
  /// without it.
  [[nodiscard]] HEADSCOPE_API static std::shared_ptr<Monitor> attach(Options options);
  /// The same with the given sinks only (no server, history or progress line): for tests and for
  /// programs that bring their own.
  HEADSCOPE_API Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks);
  HEADSCOPE_API ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Sets the probe: the batch that is run through `forward` at due steps, in evaluation mode.
  /// Throws std::invalid_argument naming value and fix. `model` must outlive the monitor.
  HEADSCOPE_API void set_probe(torch::nn::Module& model, ForwardFunction forward,
                               ProbeOptions options, ForwardFunction attention_forward = {});
  /// The same for a model that is no torch::nn::Module.
  HEADSCOPE_API void set_probe(ProbeHost host, ProbeOptions options);

  /// Attaches without a line in the model (docs/attach.md). While a measurement is on it sees, on
  /// the thread that calls begin_step, every
  ///   scaled_dot_product_attention  call
  ///   bmm -> softmax -> bmm         of torch::nn's MultiheadAttention and its encoder and decoder
  ///                                 layers, and of attention written by hand
  /// Layers are numbered by call order. It is learnt from one forward of the probe on two rows
  /// (evaluation mode, no grad) and checked on every measured forward.
  ///
  /// layers  how many measured calls the forward must make; 0: as many as it makes
  ///
  /// Returns all calls seen, also those that are not measured. Throws std::invalid_argument when no
  /// probe is set, no attention is seen, the number of layers differs, another library overrides
  /// scaled_dot_product_attention, or a shape hides the heads. A model that also calls observe()
  /// would be measured twice. Idle cost: one relaxed load for each attention call.
  HEADSCOPE_API std::vector<AttentionSite> attach_zero_edit(int64_t layers = 0);
  /// Removes what attach_zero_edit put in place. May be called again; close() calls it.
  HEADSCOPE_API void detach_zero_edit();

  /// Starts an optimizer step. Runs the probe first when one is due.
  [[nodiscard]] HEADSCOPE_API StepScope begin_step(const StepInfo& info);

  /// The tap: one line in the attention layer, after its output is known and before heads are
  /// merged. Use what it returns in place of z.
  ///
  /// layer  global index from 0
  /// q      [B, Hq, T, D]
  /// k      [B, Hkv, T, D]
  /// v      [B, Hkv, T, Dv]
  /// z      [B, Hq, T, Dv], the attention's output
  /// call   how the scores became attention
  ///
  /// Returns z itself, except during an ablation (a verification's, or the user's): then a copy of
  /// z in which the ablated heads are replaced. Reads its arguments before it returns.
  /// Self-attention over whole rows only: a call with more or fewer keys than queries is counted
  /// and not measured.
  /// Idle cost: one relaxed load.
  [[nodiscard]] at::Tensor observe(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& z,
                                   const AttentionCall& call = {}) {
    if (mode_.load(std::memory_order_relaxed) == Mode::kIdle) return z;
    return observe_active(layer, q, k, v, z, call);
  }

  /// Writes a line to the monitor's log, the first time for each key: for module adapters.
  HEADSCOPE_API void warn_once(const std::string& key, const std::string& line) noexcept;

  /// Ablates every formed circuit that has a behaviour metric, now, on every such metric. Waits for
  /// earlier measurements. Empty without a probe.
  HEADSCOPE_API std::vector<AblationReport> verify();

  /// Ablates any set of heads on any rows, now (headscope/ablation_runner.h, docs/howto/ablate.md).
  /// The model is in evaluation without grad meanwhile, and everything is put back after: modes,
  /// buffers, generators, autocast. The result is the caller's alone: no circuit changes state.
  /// Works while Options::measure is false. Waits for earlier measurements. Cost: a forward of the
  /// rows for each pass; one more for the means of a `reference`, twice as many to resample.
  ///
  /// Throws, unlike what the monitor does by itself: std::invalid_argument naming value and fix on
  /// a request that cannot work (also without a probe, or while a step is open);
  /// std::runtime_error when forward gives no logits or an ablated layer does not report; and
  /// whatever the model or the loss throws.
  HEADSCOPE_API AblationResult ablate(const AblationRequest& request);

  /// Screens every head on any rows, now (headscope/screen_runner.h, docs/howto/screen_cpp.md). The
  /// nulls are kept with the run (Snapshot::calibrations), and the recall thresholds of planted
  /// pairs stand in CircuitReading from then on. Otherwise as ablate: the host is left as it was,
  /// and it throws. Cost: a forward of the rows, and one of as many random ones; memory of one
  /// float for each head, query and position.
  HEADSCOPE_API ScreenResult screen(const ScreenRequest& request);

  /// The run so far. Waits until earlier measurements are analysed, not until the sinks have them.
  HEADSCOPE_API RunReport report();
  /// The counters as they are now; wait-free.
  HEADSCOPE_API Health health() const;
  /// Where /metrics is served, e.g. "http://127.0.0.1:9464"; "" when nowhere.
  HEADSCOPE_API std::string url() const;

  /// All that a resumed run needs to go on as if unbroken. Waits for earlier measurements, and at
  /// most 5 s until the sinks have them (once for a sink that hangs), so that a run killed later
  /// loses nothing before this state.
  [[nodiscard]] HEADSCOPE_API StateDict state_dict();
  /// Goes on from a state. Throws std::runtime_error naming the difference when the state is of
  /// another configuration.
  HEADSCOPE_API void load_state_dict(const StateDict& state);

  /// Finishes: analyses what is pending, gives the sinks up to `timeout_seconds`, stops the
  /// threads. May be called again; the destructor calls it.
  HEADSCOPE_API void close(double timeout_seconds = 5);

 private:
  friend class StepScope;
  friend class Taps;
  /// What taps do: nothing, capture (a training step, the probe's three batches), ablate heads, or
  /// keep rows of a screen.
  enum class Mode : uint8_t { kIdle, kTrain, kProbe, kNullProbe, kRepeatProbe, kAblate, kScreen };
  HEADSCOPE_API at::Tensor observe_active(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const at::Tensor& z,
                                          const AttentionCall& call);
  void end_step(uint64_t step);

  struct Impl;
  Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks,
          std::shared_ptr<HealthCounters> health);

  std::atomic<Mode> mode_{Mode::kIdle};
  std::unique_ptr<Impl> impl_;
};

}  // namespace headscope
