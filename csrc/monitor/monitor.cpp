#include "headscope/monitor.h"

#include <ATen/ATen.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "csrc/monitor/monitor_impl.h"

namespace headscope {
namespace {

void log_to_stderr(LogLevel, const std::string& line) {
  std::fprintf(stderr, "[headscope] %s\n", line.c_str());
}

}  // namespace

Options checked_options(Options options) {
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
  if (!options.log) options.log = log_to_stderr;
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
  std::memcpy(tensor.data_ptr(), bytes.data(), bytes.size());
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

}  // namespace

StepScope::StepScope(StepScope&& other) noexcept
    : monitor_(std::exchange(other.monitor_, nullptr)) {}

StepScope::~StepScope() {
  if (monitor_ != nullptr) monitor_->end_step();
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
      mode(mode_in) {}

Monitor::Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks)
    : Monitor(checked_options(std::move(options)), std::move(sinks),
              std::make_shared<HealthCounters>()) {}

Monitor::Monitor(Options options, std::vector<std::shared_ptr<Sink>> sinks,
                 std::shared_ptr<HealthCounters> health)
    : impl_(
          std::make_unique<Impl>(std::move(options), std::move(sinks), std::move(health), mode_)) {}

Monitor::~Monitor() { close(); }

void Monitor::set_probe(ProbeHost host, ProbeOptions options) {
  if (!host.forward) throw std::invalid_argument("headscope: set_probe needs a forward function");
  ProbeOptions full = resolved(std::move(options));
  impl_->drain();
  const InductionBatch batch = induction_batch({.examples = full.examples,
                                                .context = full.context,
                                                .token_low = full.token_low,
                                                .token_high = full.token_high,
                                                .seed = full.seed,
                                                .window = full.window});
  impl_->plan = std::make_shared<const ProbePlan>(plan_probe(batch.tokens, full));
  impl_->repeat = plan_repeat(full);
  impl_->behaviours = behaviour_batches(full);
  impl_->null_chunks.clear();
  if (full.pr_null) {
    const at::Tensor tokens =
        random_tokens(full.examples, full.context, 0, full.vocab_size, full.seed + 3);
    for (const auto& chunk : tokens.split(full.micro_batch)) impl_->null_chunks.push_back(chunk);
  }
  impl_->analysis.set_probe(impl_->plan, definition_of(full));
  impl_->probe = std::move(full);
  impl_->host = std::move(host);
}

StepScope Monitor::begin_step(const StepInfo& info) {
  impl_->gate->guarded(Fault::kProbe, [&] { impl_->begin_step(info); });
  return StepScope(this);
}

void Monitor::end_step() {
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
  impl_->worker.drain();
  impl_->analysis.report(report);
  report.layers = impl_->layer_count.load();
  return report;
}

Health Monitor::health() const { return impl_->health->read(); }

std::string Monitor::url() const { return impl_->url; }

StateDict Monitor::state_dict() {
  impl_->worker.drain();
  const Scheduler::State& schedule = impl_->scheduler.state();
  const std::vector<double> values = {static_cast<double>(impl_->next_step),
                                      static_cast<double>(schedule.last_probe_step),
                                      schedule.last_probe_tokens, impl_->step.tokens};
  const at::Tensor numbers = at::tensor(values, at::kDouble);
  std::vector<int64_t> layers(impl_->known_layers.begin(), impl_->known_layers.end());
  return {{"analysis", bytes_to_tensor(impl_->analysis.save())},
          {"schedule", numbers},
          {"layers", at::tensor(layers, at::kLong)}};
}

void Monitor::load_state_dict(const StateDict& state) {
  impl_->worker.drain();
  const std::string analysis = tensor_to_bytes(state, "analysis");
  const auto numbers = state.find("schedule"), layers = state.find("layers");
  if (numbers == state.end() || numbers->second.numel() != 4 || layers == state.end()) {
    throw std::runtime_error("headscope: the state has no valid entries 'schedule' and 'layers'");
  }
  impl_->analysis.load(analysis);
  const at::Tensor values = numbers->second.to(at::kCPU, at::kDouble).contiguous();
  const double* data = values.const_data_ptr<double>();
  impl_->next_step = static_cast<int64_t>(data[0]);
  impl_->scheduler.restore({static_cast<int64_t>(data[1]), data[2]});
  // Until the next begin_step the run stands at its last step: what verify() and close() date their
  // results by.
  impl_->step = {impl_->next_step - 1, data[3], wall_clock(), kNaN, static_cast<int64_t>(data[1])};
  const at::Tensor ids = layers->second.to(at::kCPU, at::kLong).contiguous();
  impl_->known_layers = {ids.const_data_ptr<int64_t>(),
                         ids.const_data_ptr<int64_t>() + ids.numel()};
  impl_->layer_count.store(static_cast<int64_t>(impl_->known_layers.size()));
}

void Monitor::close(double timeout_seconds) {
  if (impl_->closed) return;
  impl_->worker.drain();
  impl_->gate->guarded(Fault::kAnalysis, [&] { impl_->analysis.flush(impl_->step); });
  mode_.store(Mode::kIdle, std::memory_order_relaxed);
  impl_->closed = true;
  impl_->sinks.close(timeout_seconds);
}

}  // namespace headscope
