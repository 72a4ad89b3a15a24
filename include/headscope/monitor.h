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
  std::optional<int64_t> step =
      {};  ///< optimizer steps done so far; default: counts from 0 (or from the loaded state)
  double tokens_seen = kNaN;  ///< before this step; NaN: integrals need IntegralAxis::kStep
};

/// Runs tokens [N, T] i64 through the user's model and returns logits [N, T, V] (or an undefined
/// tensor: no ablation verdicts).
using ForwardFunction = std::function<at::Tensor(const at::Tensor& tokens)>;

/// How the probe may use the user's model. set_probe(torch::nn::Module&, ...) makes one.
struct ProbeHost {
  ForwardFunction forward;
  /// Puts the model into evaluation and returns a handle whose release puts everything back as it
  /// was.
  std::function<std::shared_ptr<void>()> enter_evaluation;
};

/// All that a run has come to, for reports and tests.
struct RunReport {
  std::vector<CircuitReading> circuits;
  std::vector<Event> events;  ///< since attach or the loaded state's start, oldest first
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
  std::string refusal;  ///< why it is not measured
  std::string kind;     ///< "scaled_dot_product_attention" or "bmm-softmax-bmm"
  int64_t query_heads = 0, key_heads = 0, head_dim = 0, value_dim = 0;
};

class Monitor;
struct HealthCounters;

/// One optimizer step; made by Monitor::begin_step, ends with its scope. Movable. Never throws.
class StepScope {
 public:
  HEADSCOPE_API StepScope(StepScope&& other) noexcept;
  StepScope& operator=(StepScope&&) = delete;
  HEADSCOPE_API ~StepScope();
  /// Tells the token ids [B, T] of the forward that follows on this thread; needed for induction
  /// and duplicate-token on training text. Tell every micro-batch of a step or none: once some are
  /// told, forwards beyond them are taken for evaluations and left out. Any thread that runs
  /// forwards.
  HEADSCOPE_API void micro_batch(const at::Tensor& ids);
  /// The step's loss, for the record.
  HEADSCOPE_API void loss(double value);

 private:
  friend class Monitor;
  StepScope(Monitor* monitor, uint64_t step) : monitor_(monitor), step_(step) {}
  Monitor* monitor_;
  uint64_t step_;  // a scope that the next step has replaced ends nothing
};

/// Watches one model. Several may live in a process; taps belong to the monitor they call.
///
/// Threads: begin_step, StepScope, set_probe, verify, state_dict and load_state_dict belong to the
/// training thread; observe may be called from any thread; report may be called from any thread.
/// In a child that fork() makes the inherited monitor is inert; attach one of the child's own.
/// After attach and set_probe nothing here throws: faults are caught, counted in Health::errors,
/// logged once a kind, and that measurement pauses for a while and comes back.
class Monitor {
 public:
  /// Attaches with the sinks that the options name. Throws std::invalid_argument on options that
  /// cannot be meant, in a second copy of headscope in the process, and on a torch of another
  /// release than the library was built for (docs/packaging.md). A run directory that cannot be
  /// written or a server that cannot start is logged and counted; the run goes on without.
  HEADSCOPE_API static std::shared_ptr<Monitor> attach(Options options);
  /// The same with given sinks only (no server, history or progress line): for tests and embedding.
  HEADSCOPE_API Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks);
  HEADSCOPE_API ~Monitor();
  Monitor(const Monitor&) = delete;
  Monitor& operator=(const Monitor&) = delete;

  /// Sets the probe; throws std::invalid_argument naming value and fix.
  HEADSCOPE_API void set_probe(torch::nn::Module& model, ForwardFunction forward,
                               ProbeOptions options);
  HEADSCOPE_API void set_probe(ProbeHost host, ProbeOptions options);

  /// Attaches without a line in the model (docs/attach.md): sees every
  /// scaled_dot_product_attention call and every bmm -> softmax -> bmm (torch::nn's
  /// MultiheadAttention and its encoder and decoder layers, and attention written by hand) of the
  /// thread that calls begin_step, while a measurement is on. Layers are numbered by call order,
  /// which is learnt from one forward of the probe on two rows (evaluation mode, no grad) and
  /// checked on every measured forward.
  ///
  /// layers: how many measured calls the forward must make; 0: as many as it makes. Returns all
  /// calls seen, also those that are not measured. Throws std::invalid_argument where it cannot be
  /// right: no probe set, no attention seen, another number of layers, another library's override
  /// of scaled_dot_product_attention, a shape that hides the heads. A model that also calls
  /// observe() would be measured twice. Idle cost: one relaxed load an attention call.
  HEADSCOPE_API std::vector<AttentionSite> attach_zero_edit(int64_t layers = 0);
  /// Removes all that attach_zero_edit put in place. Idempotent; close() calls it.
  HEADSCOPE_API void detach_zero_edit();

  /// Starts an optimizer step. Runs the probe first when one is due.
  [[nodiscard]] HEADSCOPE_API StepScope begin_step(const StepInfo& info);

  /// The tap: one line in the attention layer, after its output is known and before heads are
  /// merged.
  ///
  /// layer: global index from 0. q [B, Hq, T, D], k [B, Hkv, T, D], v [B, Hkv, T, Dv], z [B, Hq, T,
  /// Dv]. call: how the scores became attention. Self-attention over whole rows only: other numbers
  /// of keys than of queries are refused. Returns z itself, except during the monitor's own
  /// verification passes, when chosen heads come back zeroed. Reads its arguments before it
  /// returns. Idle cost: one relaxed load.
  at::Tensor observe(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const at::Tensor& z, const AttentionCall& call = {}) {
    if (mode_.load(std::memory_order_relaxed) == Mode::kIdle) return z;
    return observe_active(layer, q, k, v, z, call);
  }

  /// A line in the monitor's log, the first time for each key: for adapters. Never throws.
  HEADSCOPE_API void warn_once(const std::string& key, const std::string& line) noexcept;

  /// Ablates every formed circuit that has a behavioural metric, now; waits for earlier
  /// measurements. Empty without a probe.
  HEADSCOPE_API std::vector<AblationReport> verify();

  /// Waits until all measurements so far are analysed (not until the sinks have them).
  HEADSCOPE_API RunReport report();
  /// Counters of now; wait-free.
  HEADSCOPE_API Health health() const;
  /// Where /metrics is served, "" when nowhere.
  HEADSCOPE_API std::string url() const;

  /// Complete resumable state; waits for earlier measurements and until the sinks have them, at
  /// most 5 s (a sink that hangs is waited for once): a run killed later loses nothing before it.
  HEADSCOPE_API StateDict state_dict();
  /// Throws std::runtime_error naming the difference when the state is of another configuration.
  HEADSCOPE_API void load_state_dict(const StateDict& state);

  /// Finishes: analyses what is pending, gives the sinks up to `timeout_seconds`, stops the
  /// threads. Idempotent; the destructor calls it.
  HEADSCOPE_API void close(double timeout_seconds = 5);

 private:
  friend class StepScope;
  friend class Taps;
  /// What taps do: nothing, capture (a training step, the probe's three batches), or zero heads.
  enum class Mode : uint8_t { kIdle, kTrain, kProbe, kNullProbe, kRepeatProbe, kAblate };
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
