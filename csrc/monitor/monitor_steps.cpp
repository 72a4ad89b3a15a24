#include <ATen/ATen.h>

#include "csrc/monitor/host_guard.h"
#include "csrc/monitor/monitor_impl.h"

namespace headscope {

void Monitor::Impl::drain() {
  const ScopedTimer timer(health->wait_nanoseconds);
  worker.drain();
}

void Monitor::Impl::begin_step(const StepInfo& info) {
  const int64_t previous_probe = scheduler.state().last_probe_step;
  step = {info.step.value_or(next_step), info.tokens_seen, wall_clock(), kNaN, previous_probe};
  next_step = step.step + 1;
  ids.clear();
  if (!options.measure || closed) return;
  const bool probe_now = host && scheduler.probe_due(step.step, step.tokens);
  const bool train_now = scheduler.train_due(step.step);
  if (!probe_now && !train_now) return;
  drain();
  if (probe_now) {
    if (!std::isfinite(step.tokens) && options.integral.axis != IntegralAxis::kStep) {
      gate->log(
          LogLevel::kWarning,
          std::string("begin_step was told no tokens_seen, so there is no PR integral over ") +
              to_string(options.integral.axis) +
              "; tell them, or set integral.axis to IntegralAxis::kStep",
          "tokens");
    }
    verify_due(step);
    if (probe_backoff.ready()) run_probe(step);
    scheduler.probed(step.step, step.tokens);
  }
  if (train_now && train_backoff.ready()) {
    const std::scoped_lock lock(tap_mutex);
    capture = std::make_unique<Capture>();
    capture_failed = false;
    mode.store(Mode::kTrain, std::memory_order_relaxed);
  }
}

void Monitor::Impl::micro_batch(const at::Tensor& told) {
  if (mode.load(std::memory_order_relaxed) != Mode::kTrain) return;
  gate->guarded(Fault::kTap, [&] {
    const QuietScope quiet;
    at::Tensor copy = told.to(at::kCPU, at::kLong).clone();
    const std::scoped_lock lock(tap_mutex);
    ids.push_back(std::move(copy));
  });
}

void Monitor::Impl::end_step() {
  if (mode.load(std::memory_order_relaxed) != Mode::kTrain) return;
  std::shared_ptr<Capture> taken;
  {
    const std::scoped_lock lock(tap_mutex);
    mode.store(Mode::kIdle, std::memory_order_relaxed);
    taken = std::move(capture);
    if (capture_failed) {
      train_backoff.failed();
      return;
    }
  }
  std::erase_if(taken->layers, [](const auto& entry) { return entry.second.spectrum.empty(); });
  if (taken->layers.empty() && known_layers.empty()) {
    gate->log(LogLevel::kWarning,
              "no attention reported during a measured step: is observe() called, and does the "
              "model run inside the step's "
              "scope?",
              "no taps");
    return;
  }
  count_missing(*taken, "a training step");
  if (taken->layers.empty()) return;
  train_backoff.succeeded();
  drain();  // a probe of this very step may still be analysed
  worker.submit([this, taken, info = step] {
    const ScopedTimer timer(health->analysis_nanoseconds);
    gate->guarded(Fault::kAnalysis, [&] { analysis.take_train(*taken, info); });
  });
}

void Monitor::Impl::count_missing(const Capture& taken, const char* where) {
  std::string missing;
  for (const int64_t layer : known_layers) {
    if (taken.layers.contains(layer)) continue;
    health->taps_missing.fetch_add(1, std::memory_order_relaxed);
    missing += (missing.empty() ? "" : ", ") + std::to_string(layer);
  }
  if (!missing.empty()) {
    gate->log(LogLevel::kWarning,
              std::string("layers ") + missing + " did not report during " + where +
                  " (counted in headscope_taps_missing_total)",
              "missing");
  }
  for (const auto& [layer, own] : taken.layers) known_layers.insert(layer);
  layer_count.store(static_cast<int64_t>(known_layers.size()));
}

void Monitor::Impl::run_probe(const CaptureInfo& info) {
  std::shared_ptr<Capture> taken;
  const bool ran = gate->guarded(Fault::kProbe, [&] {
    const ScopedTimer timer(health->probe_nanoseconds);
    {
      const std::scoped_lock lock(tap_mutex);
      capture = std::make_unique<Capture>();
      capture->context = plan->context;
      capture_failed = false;
      pass_thread.store(std::this_thread::get_id());
    }
    // Whatever happens in the user's forward, the taps are idle again when this scope is left.
    const std::shared_ptr<void> idle_again(
        nullptr, [this](void*) { mode.store(Mode::kIdle, std::memory_order_relaxed); });
    const HostGuard guard;
    const std::shared_ptr<void> evaluation =
        host->enter_evaluation ? host->enter_evaluation() : nullptr;
    mode.store(Mode::kProbe, std::memory_order_relaxed);
    for (probe_chunk = 0; probe_chunk < plan->chunks.size(); ++probe_chunk) {
      host->forward(plan->chunks[probe_chunk].tokens);
    }
    mode.store(Mode::kNullProbe, std::memory_order_relaxed);
    for (const at::Tensor& tokens : null_chunks) host->forward(tokens);
    mode.store(Mode::kRepeatProbe, std::memory_order_relaxed);
    capture->repeat_gap = repeat_gap(host->forward(repeat.tokens), repeat);
  });
  {
    const std::scoped_lock lock(tap_mutex);
    taken = std::move(capture);
    if (!ran || capture_failed) {
      probe_backoff.failed();
      return;
    }
  }
  std::erase_if(taken->layers, [this](const auto& entry) {
    return entry.second.attention.size() != plan->chunks.size();
  });
  if (taken->layers.empty() && known_layers.empty()) {
    gate->log(
        LogLevel::kWarning,
        "no attention reported during the probe: does forward run layers that call observe()?",
        "no probe taps");
    return;
  }
  count_missing(*taken, "the probe");
  if (taken->layers.empty()) return;
  probe_backoff.succeeded();
  worker.submit([this, taken, info] {
    const ScopedTimer timer(health->analysis_nanoseconds);
    gate->guarded(Fault::kAnalysis, [&] { analysis.take_probe(*taken, info); });
  });
}

}  // namespace headscope
