#include <ATen/ATen.h>

#include "csrc/measure/one_core.h"
#include "csrc/monitor/analysis/hand_over.h"
#include "csrc/monitor/edge/host_guard.h"
#include "csrc/monitor/monitor_impl.h"

namespace headscope {

void Monitor::Impl::drain() {
  const ScopedTimer timer(health->wait_nanoseconds);
  worker.drain();
}

void Monitor::Impl::set_mode(Mode next) {
  const Mode before = mode.load(std::memory_order_relaxed);
  const bool changes = calls && (before == Mode::kIdle) != (next == Mode::kIdle);
  if (changes && next == Mode::kIdle) calls->measuring(false);
  mode.store(next, std::memory_order_relaxed);
  if (changes && next != Mode::kIdle) calls->measuring(true);
}

at::Tensor Monitor::Impl::forward(const at::Tensor& tokens) {
  if (calls) calls->forward_begins();
  return host->forward(tokens);
}

void Monitor::Impl::charge_analysis() {
  const double cpu =
      1e-9 * static_cast<double>(health->analysis_cpu_nanoseconds.load(std::memory_order_relaxed));
  if (cpu <= charged_cpu) return;
  // A thread of its own takes one core of those that training could use.
  const double cores = std::max(1u, std::thread::hardware_concurrency());
  const double seconds = (cpu - charged_cpu) / cores;
  analysed_probe ? budget.spent_aside(seconds) : budget.spent(Budget::Work::kTrain, seconds, 0);
  charged_cpu = cpu;
}

Monitor::Impl::Due Monitor::Impl::within_budget(const CaptureInfo& info, bool probe_due,
                                                bool train_due) {
  if (!budget.bounded()) return {probe_due, train_due, probe_due};
  // Where a wait would come, the measurement comes later instead.
  const bool idle = worker.idle();
  if (idle) charge_analysis();
  Due due{};
  due.probe = probe_due && idle && budget.allows(Budget::Work::kProbe);
  // A probe's analysis outlasts the step: the training batch of another step will do.
  due.train = train_due && idle && !due.probe && budget.allows(Budget::Work::kTrain);
  due.verification = idle && (verifying || analysis.verification_due());
  const bool put_off = probe_due && !due.probe;
  if (put_off && deferred_since < 0) deferred_since = info.step;
  if (put_off || (train_due && !due.train && !due.probe))
    health->deferred.fetch_add(1, std::memory_order_relaxed);
  health->budget_used_ratio.store(budget.used_ratio(), std::memory_order_relaxed);
  return due;
}

void Monitor::Impl::record_deferral(const CaptureInfo& info) {
  if (deferred_since < 0) return;
  Event event;
  event.step = info.step;
  event.tokens = info.tokens;
  event.wall_time = info.wall_time;
  event.previous_probe_step = info.previous_probe_step;
  event.kind = "deferred";
  event.figures = {{"due_step", static_cast<double>(deferred_since)},
                   {"expected_seconds", budget.expected(Budget::Work::kProbe)},
                   {"budget_ratio", options.schedule.budget}};
  event.rule = "a probe that was due ran when the overhead budget allowed it";
  gate->log(LogLevel::kInfo,
            c10::str("a probe due at step ", deferred_since, " ran at step ", info.step,
                     ": one takes about ", budget.expected(Budget::Work::kProbe),
                     " s and Schedule::budget is ", options.schedule.budget,
                     " (each is recorded as an event of kind deferred)"),
            "deferred");
  analysis.take_event(std::move(event));
  deferred_since = -1;
}

void Monitor::Impl::begin_step(const StepInfo& info) {
  const int64_t previous_probe = scheduler.state().last_probe_step;
  step = {info.step.value_or(next_step), info.tokens_seen, wall_clock(), kNaN, previous_probe};
  next_step = step.step + 1;
  {
    const std::scoped_lock lock(tap_mutex);
    ids.clear();
  }
  if (!options.measure || closed) return;
  const Due due = within_budget(step, host && scheduler.probe_due(step.step, step.tokens),
                                scheduler.train_due(step.step));
  if (!due.probe && !due.train && !due.verification) return;
  drain();
  if (due.verification) verify_due(step);
  if (due.probe && budget.allows(Budget::Work::kProbe)) {
    if (!std::isfinite(step.tokens) && options.integral.axis != IntegralAxis::kStep) {
      gate->log(
          LogLevel::kWarning,
          std::string("begin_step was told no tokens_seen, so there is no PR integral over ") +
              to_string(options.integral.axis) +
              "; tell them, or set integral.axis to IntegralAxis::kStep",
          "tokens");
    }
    if (probe_backoff.ready()) {
      record_deferral(step);
      const double start = budget.now();
      run_probe(step);
      budget.spent(Budget::Work::kProbe, budget.now() - start);
    }
    scheduler.probed(step.step, step.tokens);
  }
  if (due.train && train_backoff.ready()) {
    const std::scoped_lock lock(tap_mutex);
    capture = std::make_unique<Capture>();
    capture_failed = false;
    tap_nanoseconds_before = health->tap_nanoseconds.load(std::memory_order_relaxed);
    set_mode(Mode::kTrain);
  }
}

void Monitor::Impl::micro_batch(const at::Tensor& told) {
  if (mode.load(std::memory_order_relaxed) != Mode::kTrain) return;
  gate->guarded(Fault::kTap, [&] {
    const QuietScope quiet;
    at::Tensor copy = told.to(at::kCPU, at::kLong).clone();
    {
      const std::scoped_lock lock(tap_mutex);
      ids[std::this_thread::get_id()].push_back(std::move(copy));
    }
    if (calls) calls->forward_begins();
  });
}

void Monitor::Impl::end_step() {
  if (mode.load(std::memory_order_relaxed) != Mode::kTrain) return;
  std::shared_ptr<Capture> taken;
  {
    set_mode(Mode::kIdle);
    budget.spent(Budget::Work::kTrain, 1e-9 * static_cast<double>(health->tap_nanoseconds.load() -
                                                                  tap_nanoseconds_before));
    const std::scoped_lock lock(tap_mutex);
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
  analyse(std::move(taken), step, Source::kTrain);
}

void Monitor::Impl::analyse(std::shared_ptr<Capture> taken, const CaptureInfo& info,
                            Source source) {
  analysed_probe = source == Source::kProbe;
  std::shared_ptr<HandOver> hand_over;
  const bool handed = gate->guarded(source == Source::kTrain ? Fault::kTap : Fault::kProbe, [&] {
    hand_over = std::make_shared<HandOver>(*taken, options.eigenvalues_on_device);
  });
  if (!handed) return;
  worker.submit([this, taken = std::move(taken), hand_over, info, source] {
    const AnalysisTimer timer(*health);
    gate->guarded(Fault::kAnalysis, [&] {
      const measure::OneCore one_core;
      const auto reading = hand_over->arrived();
      judge_self_checks(*taken);
      source == Source::kProbe ? analysis.take_probe(*taken, info)
                               : analysis.take_train(*taken, info);
    });
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
    const std::shared_ptr<void> idle_again(nullptr, [this](void*) { set_mode(Mode::kIdle); });
    const HostGuard guard;
    const std::shared_ptr<void> evaluation =
        host->enter_evaluation ? host->enter_evaluation() : nullptr;
    set_mode(Mode::kProbe);
    for (probe_chunk = 0; probe_chunk < plan->chunks.size(); ++probe_chunk) {
      forward(plan->chunks[probe_chunk].tokens);
    }
    set_mode(Mode::kNullProbe);
    for (const at::Tensor& tokens : null_chunks) forward(tokens);
    set_mode(Mode::kRepeatProbe);
    capture->repeat_gap = repeat_gap(forward(repeat.tokens), repeat);
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
  analyse(std::move(taken), info, Source::kProbe);
}

}  // namespace headscope
