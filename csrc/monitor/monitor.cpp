#include "headscope/monitor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <stdexcept>

#include "csrc/measure/process_check.h"
#include "csrc/monitor/analysis/state_codec.h"
#include "csrc/monitor/monitor_impl.h"

namespace headscope {
namespace {

void log_to_stderr(LogLevel, const std::string& line) {
  std::fprintf(stderr, "[headscope] %s\n", line.c_str());
}

constexpr double kSinkSeconds = 5;  // that state_dict gives the sinks

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Options checked_options(Options options) {
  measure::check_process();
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("headscope options: " + what);
  };
  if (options.schedule.train_every < 0) {
    refuse("schedule.train_every must not be negative, got " +
           std::to_string(options.schedule.train_every));
  }
  if (options.schedule.longest_probe_gap < 1 || options.schedule.shortest_probe_gap < 1 ||
      options.schedule.shortest_probe_gap > options.schedule.longest_probe_gap) {
    refuse("1 <= schedule.shortest_probe_gap <= schedule.longest_probe_gap is needed, got " +
           std::to_string(options.schedule.shortest_probe_gap) + " and " +
           std::to_string(options.schedule.longest_probe_gap));
  }
  if (options.sampled_rows < 1 || options.sampled_rows > 16) {
    refuse("sampled_rows must lie in 1..16, got " + std::to_string(options.sampled_rows));
  }
  if (options.port < 0 || options.port > 65535) {
    refuse("port must lie in 0..65535, got " + std::to_string(options.port));
  }
  if (options.sink_queue < 1) refuse("sink_queue must be at least 1");
  const auto require = [&](bool good, const char* name, double value, const char* range) {
    if (!good) refuse(std::string(name) + " must be " + range + ", got " + std::to_string(value));
  };
  require(options.schedule.probes_per_octave >= 0, "schedule.probes_per_octave",
          options.schedule.probes_per_octave, "0 (no probes) or more");
  require(options.integral.floor_tokens > 0 && std::isfinite(options.integral.floor_tokens),
          "integral.floor_tokens", options.integral.floor_tokens, "finite and above 0");
  require(options.controls.wanted >= 1, "controls.wanted",
          static_cast<double>(options.controls.wanted), "at least 1");
  require(options.verdict.confidence > 0 && options.verdict.confidence < 1, "verdict.confidence",
          options.verdict.confidence, "above 0 and below 1");
  require(options.verdict.resamples >= 1, "verdict.resamples",
          static_cast<double>(options.verdict.resamples), "at least 1");
  require(options.verdict.min_ratio > 0, "verdict.min_ratio", options.verdict.min_ratio, "above 0");
  require(options.verdict.smallest_effect >= 0, "verdict.smallest_effect",
          options.verdict.smallest_effect, "0 or more");
  require(options.schedule.budget >= 0 && options.schedule.budget <= 1, "schedule.budget",
          options.schedule.budget, "a share from 0 (no bound) to 1");
  if (!options.log) options.log = log_to_stderr;
  if (!options.clock) options.clock = monotonic_seconds;
  return options;
}

namespace {

/// What two probes must share for their readings to be compared.
std::string definition_of(const ProbeOptions& probe) {
  return "examples " + std::to_string(probe.examples) + ", tokens [" +
         std::to_string(probe.token_low) + ", " + std::to_string(probe.token_high) + "), seed " +
         std::to_string(probe.seed) + ", controls " + to_string(probe.controls) +
         (probe.window > 0 ? ", window " + std::to_string(probe.window) : "");
}

at::Tensor bytes_to_tensor(const std::string& bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::copy(bytes.begin(), bytes.end(), tensor.data_ptr<uint8_t>());
  return tensor;
}

std::string tensor_to_bytes(const StateDict& state, const char* key) {
  const auto entry = state.find(key);
  if (entry == state.end())
    throw std::runtime_error(std::string("headscope: the state has no entry '") + key + "'");
  if (entry->second.scalar_type() != at::kByte) {
    throw std::runtime_error(std::string("headscope: the state's '") + key + "' is not bytes");
  }
  const at::Tensor bytes = entry->second.cpu().contiguous();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

template <typename Number>
std::vector<Number> numbers_of(const StateDict& state, const char* key, at::ScalarType type) {
  const auto entry = state.find(key);
  if (entry == state.end())
    throw std::runtime_error(std::string("headscope: the state has no entry '") + key + "'");
  const at::Tensor values = entry->second.to(at::kCPU, type).contiguous();
  const Number* data = values.const_data_ptr<Number>();
  return {data, data + values.numel()};
}

}  // namespace

StepScope::StepScope(StepScope&& other) noexcept
    : monitor_(std::exchange(other.monitor_, nullptr)), step_(other.step_) {}

StepScope::~StepScope() {
  if (monitor_ != nullptr) monitor_->end_step(step_);
}

void StepScope::micro_batch(const at::Tensor& ids) {
  if (monitor_ != nullptr) monitor_->impl_->micro_batch(ids);
}

void StepScope::loss(double value) {
  if (monitor_ != nullptr) monitor_->impl_->step.loss = value;
}

Monitor::Impl::Impl(Options options_in, std::vector<std::shared_ptr<Sink>> sinks_in,
                    std::shared_ptr<HealthCounters> health_in, std::atomic<Mode>& mode_in)
    : options(std::move(options_in)),
      health(std::move(health_in)),
      gate(std::make_shared<FaultGate>(options.log, *health)),
      sinks(std::move(sinks_in), options.on_event, options.sink_queue, health, gate),
      analysis(options, health, gate, sinks),
      scheduler(options.schedule),
      budget(options.schedule.budget, options.clock),
      mode(mode_in) {
  health->budget_ratio.store(options.schedule.budget, std::memory_order_relaxed);
}

Monitor::Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks)
    : Monitor(checked_options(std::move(options)), std::move(sinks),
              std::make_shared<HealthCounters>()) {}

Monitor::Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks,
                 std::shared_ptr<HealthCounters> health)
    : impl_(
          std::make_unique<Impl>(std::move(options), std::move(sinks), std::move(health), mode_)) {}

Monitor::~Monitor() {
  // Destroying mutexes and threads that belong to another process would hang.
  if (impl_->inherited()) {
    static_cast<void>(impl_.release());
    return;
  }
  close();
}

void Monitor::Impl::refuse_inherited() const {
  if (!inherited()) return;
  throw std::invalid_argument(
      "headscope: this monitor belongs to the process that fork() copied; attach one of this "
      "process's own");
}

void Monitor::set_probe(ProbeHost host, ProbeOptions options) {
  if (!host.forward) throw std::invalid_argument("headscope: set_probe needs a forward function");
  impl_->refuse_inherited();
  ProbeOptions full = resolved(std::move(options));
  impl_->drain();
  const InductionBatch batch = induction_batch({.examples = full.examples,
                                                .context = full.context,
                                                .token_low = full.token_low,
                                                .token_high = full.token_high,
                                                .seed = full.seed,
                                                .window = full.window});
  // All of it is made before any of it is set: what throws leaves the earlier probe whole.
  auto plan = std::make_shared<const ProbePlan>(plan_probe(batch.tokens, full));
  RepeatPlan repeat = plan_repeat(full);
  BehaviourBatches behaviours = behaviour_batches(full);
  std::vector<at::Tensor> null_chunks;
  if (full.pr_null) {
    const at::Tensor tokens =
        random_tokens(full.examples, full.context, 0, full.vocab_size, full.seed + 3);
    for (const auto& chunk : tokens.split(full.micro_batch)) null_chunks.push_back(chunk);
  }
  impl_->analysis.set_probe(plan, definition_of(full));
  impl_->verifying.reset();
  {
    // A capture in progress was planned for other patterns.
    const std::scoped_lock lock(impl_->tap_mutex);
    impl_->capture_failed = true;
  }
  impl_->plan = std::move(plan);
  impl_->repeat = std::move(repeat);
  impl_->behaviours = std::move(behaviours);
  impl_->null_chunks = std::move(null_chunks);
  impl_->probe = std::move(full);
  impl_->host = std::move(host);
}

StepScope Monitor::begin_step(const StepInfo& info) {
  if (impl_->inherited()) return StepScope(nullptr, 0);
  // A scope that is replaced by the next step's ends after that has begun.
  end_step(impl_->open_step);
  impl_->gate->guarded(Fault::kProbe, [&] { impl_->begin_step(info); });
  return StepScope(this, ++impl_->open_step);
}

void Monitor::end_step(uint64_t step) {
  if (impl_->inherited() || step != impl_->open_step) return;
  impl_->gate->guarded(Fault::kTap, [&] { impl_->end_step(); });
}

at::Tensor Monitor::observe_active(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& z,
                                   const AttentionCall& call) {
  return impl_->observe(layer, q, k, v, z, call);
}

std::vector<AblationReport> Monitor::verify() { return impl_->verify_formed(); }

RunReport Monitor::report() {
  RunReport report;
  if (impl_->inherited()) return report;
  impl_->worker.drain();
  impl_->analysis.report(report);
  report.layers = impl_->layer_count.load();
  return report;
}

Health Monitor::health() const { return impl_->health->read(); }

void Monitor::warn_once(const std::string& key, const std::string& line) noexcept {
  if (!impl_->inherited()) impl_->gate->log(LogLevel::kWarning, line, key);
}

std::string Monitor::url() const { return impl_->url; }

StateDict Monitor::state_dict() {
  impl_->refuse_inherited();
  impl_->worker.drain();
  // What this state takes for told must outlive a kill right after: no resumed run tells it again.
  if (!impl_->closed) {
    impl_->gate->guarded(Fault::kAnalysis, [&] { impl_->analysis.flush(impl_->step); });
    impl_->sinks.flush(kSinkSeconds);
  }
  const Scheduler::State& schedule = impl_->scheduler.state();
  std::vector<double> values = {
      static_cast<double>(impl_->next_step), static_cast<double>(schedule.last_probe_step),
      schedule.last_probe_tokens, impl_->step.tokens, static_cast<double>(impl_->deferred_since)};
  for (const Backoff* backoff : impl_->backoffs()) {
    values.push_back(static_cast<double>(backoff->save().first));
    values.push_back(static_cast<double>(backoff->save().second));
  }
  std::vector<int64_t> layers(impl_->known_layers.begin(), impl_->known_layers.end());
  return {{"analysis", bytes_to_tensor(impl_->analysis.save())},
          {"schedule", at::tensor(values, at::kDouble)},
          {"budget", at::tensor(impl_->budget.save(), at::kDouble)},
          {"verification", bytes_to_tensor(impl_->verifying ? encode(*impl_->verifying) : "")},
          {"layers", at::tensor(layers, at::kLong)}};
}

void Monitor::load_state_dict(const StateDict& state) {
  impl_->refuse_inherited();
  impl_->worker.drain();
  // Everything is read before anything is changed: a state that is refused leaves the monitor as it
  // was.
  const std::string analysis = tensor_to_bytes(state, "analysis"),
                    verification = tensor_to_bytes(state, "verification");
  const std::vector<double> schedule = numbers_of<double>(state, "schedule", at::kDouble),
                            budget = numbers_of<double>(state, "budget", at::kDouble);
  const std::vector<int64_t> layers = numbers_of<int64_t>(state, "layers", at::kLong);
  if (schedule.size() != 5 + 2 * impl_->backoffs().size())
    throw std::runtime_error("headscope: the state's 'schedule' has " +
                             std::to_string(schedule.size()) + " numbers");
  std::optional<Verification> verifying;
  if (!verification.empty()) verifying = decode_verification(verification);
  Budget restored(impl_->options.schedule.budget, impl_->options.clock);
  restored.restore(budget);
  impl_->analysis.load(analysis, static_cast<int64_t>(schedule[0]));
  impl_->budget = std::move(restored);
  impl_->verifying = std::move(verifying);
  impl_->next_step = static_cast<int64_t>(schedule[0]);
  impl_->scheduler.restore({static_cast<int64_t>(schedule[1]), schedule[2]});
  impl_->deferred_since = static_cast<int64_t>(schedule[4]);
  size_t next = 5;
  for (Backoff* backoff : impl_->backoffs()) {
    backoff->restore(static_cast<int64_t>(schedule[next]),
                     static_cast<int64_t>(schedule[next + 1]));
    next += 2;
  }
  // Until the next begin_step the run stands at its last step: what verify() and close() date their
  // results by.
  impl_->step = {impl_->next_step - 1, schedule[3], wall_clock(), kNaN,
                 static_cast<int64_t>(schedule[1])};
  impl_->known_layers = {layers.begin(), layers.end()};
  impl_->layer_count.store(static_cast<int64_t>(layers.size()));
}

void Monitor::close(double timeout_seconds) {
  if (impl_->closed || impl_->inherited()) return;
  impl_->worker.drain();
  impl_->gate->guarded(Fault::kAnalysis, [&] { impl_->analysis.flush(impl_->step); });
  impl_->set_mode(Mode::kIdle);
  impl_->calls.reset();
  impl_->closed = true;
  impl_->sinks.close(timeout_seconds);
}

}  // namespace headscope
