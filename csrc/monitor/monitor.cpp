#include "headscope/monitor.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "csrc/monitor/checked_options.h"
#include "csrc/monitor/monitor_impl.h"
#include "headscope/screen_runner.h"

namespace headscope {

StepScope::StepScope(StepScope&& other) noexcept
    : monitor_(std::exchange(other.monitor_, nullptr)), step_(other.step_) {}

StepScope::~StepScope() {
  if (monitor_ != nullptr) monitor_->end_step(step_);
}

void StepScope::micro_batch(const at::Tensor& ids) {
  if (monitor_ != nullptr) monitor_->impl_->taps.micro_batch(ids);
}

void StepScope::loss(double value) {
  if (monitor_ != nullptr) monitor_->impl_->steps.set_loss(value);
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

void Monitor::set_probe(ProbeHost host, ProbeOptions options) {
  if (!host.forward) throw std::invalid_argument("headscope: set_probe needs a forward function");
  impl_->refuse_inherited();
  impl_->set_probe(ProbeSetup(std::move(host), std::move(options)));
}

StepScope Monitor::begin_step(const StepInfo& info) {
  if (impl_->inherited()) return StepScope(nullptr, 0);
  // A scope that is replaced by the next step's ends after that has begun.
  end_step(impl_->open_step);
  impl_->gate->guarded(Fault::kProbe, [&] { impl_->begin_step(info); });
  impl_->step_is_open = true;
  return StepScope(this, ++impl_->open_step);
}

void Monitor::end_step(uint64_t step) {
  if (impl_->inherited() || step != impl_->open_step) return;
  impl_->step_is_open = false;
  impl_->gate->guarded(Fault::kTap, [&] { impl_->end_step(); });
}

at::Tensor Monitor::observe_active(int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const at::Tensor& z,
                                   const AttentionCall& call) {
  return impl_->taps.observe({layer, q, k, v, z, call});
}

std::vector<AblationReport> Monitor::verify() { return impl_->verify(); }

AblationResult Monitor::ablate(const AblationRequest& request) { return impl_->ablate(request); }

ScreenResult Monitor::screen(const ScreenRequest& request) { return impl_->screen(request); }

RunReport Monitor::report() {
  RunReport report;
  if (impl_->inherited()) return report;
  impl_->analysis_thread.drain();
  impl_->analysis.report(report);
  report.layers = impl_->layers.count();
  return report;
}

Health Monitor::health() const { return impl_->health->read(); }

void Monitor::warn_once(const std::string& key, const std::string& line) noexcept {
  if (!impl_->inherited()) impl_->gate->log(LogLevel::kWarning, line, key);
}

std::string Monitor::url() const { return impl_->url; }

StateDict Monitor::state_dict() { return impl_->state_dict(); }

void Monitor::load_state_dict(const StateDict& state) { impl_->load_state_dict(state); }

void Monitor::close(double timeout_seconds) { impl_->close(timeout_seconds); }

}  // namespace headscope
