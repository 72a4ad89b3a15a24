#include "csrc/monitor/monitor_impl.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <utility>

#include "csrc/monitor/passes/screen_runner.h"

namespace headscope {

Monitor::Impl::Impl(Options options_in, std::vector<std::shared_ptr<Sink>> sinks_in,
                    std::shared_ptr<HealthCounters> health_in, std::atomic<Mode>& mode)
    : options(std::move(options_in)),
      health(std::move(health_in)),
      gate(std::make_shared<FaultGate>(options.log, *health)),
      sinks(std::move(sinks_in), options.on_event, options.sink_queue, health, gate),
      analysis(options, health, gate, sinks),
      taps(options, *health, *gate, mode),
      steps(options, *health, *gate),
      ablations(options, analysis, taps, steps, *health, *gate),
      analysis_thread(analysis, options, *health, *gate) {}

void Monitor::Impl::refuse_inherited() const {
  if (!inherited()) return;
  throw std::invalid_argument(
      "headscope: this monitor belongs to the process that fork() copied; attach one of this "
      "process's own");
}

void Monitor::Impl::drain() {
  const ScopedTimer timer(health->wait_nanoseconds);
  analysis_thread.drain();
}

void Monitor::Impl::set_probe(ProbeSetup setup) {
  drain();
  analysis.set_probe(setup.plan, setup.definition());
  ablations.restore(std::nullopt);
  taps.set_probe(setup.plan, setup.repeat);
  for (size_t p = 0; p < setup.plan->patterns.size(); ++p) {
    if (setup.plan->left_out[p] == 0) continue;
    const std::string& name = setup.plan->patterns[p].name;
    gate->log(LogLevel::kInfo,
              "headscope: " + std::to_string(setup.plan->left_out[p]) + " of " +
                  std::to_string(setup.plan->examples) + " probe rows do not enter the test of " +
                  name + ": there are more than " + std::to_string(ProbePlan::kMaxCandidateSets) +
                  " distinct target sets; their selectivity is read",
              "rows left out of the test of " + name);
  }
  probe = std::move(setup);
}

Steps::Due Monitor::Impl::due() {
  const Steps::Due scheduled = steps.scheduled(/*has_probe=*/probe.has_value());
  if (!steps.budget().bounded()) return scheduled;
  const bool idle = analysis_thread.idle();
  return steps.within_budget(scheduled, idle, /*verification_due=*/idle && ablations.due());
}

void Monitor::Impl::begin_step(const StepInfo& info) {
  steps.begin(info);
  if (!options.measure || closed) return;
  const Steps::Due now = due();
  if (!now.any()) return;
  drain();
  if (now.verification && probe) ablations.go_on(*probe, steps.current());
  Budget& budget = steps.budget();
  if (now.probe && budget.allows(Budget::Work::kProbe)) {
    steps.warn_without_tokens();
    if (steps.probe_backoff().ready()) {
      if (auto deferral = steps.take_deferral()) analysis.take_event(std::move(*deferral));
      const double start = budget.now();
      run_probe();
      budget.spent(Budget::Work::kProbe, budget.now() - start);
    }
    steps.probed();
  }
  if (now.train && steps.train_backoff().ready()) {
    steps.train_begins();
    taps.begin_train(steps.current().step);
  }
}

void Monitor::Impl::run_probe() {
  const bool whole = analysis.probes() % probe->options.whole_every == 0;
  std::shared_ptr<Capture> taken =
      probe->run(taps, *health, *gate, whole,
                 [&](const Capture& quarter) { return analysis.decided_by(quarter); });
  if (!taken) {
    steps.probe_backoff().failed();
    return;
  }
  static constexpr KnownLayers::Words kWords{
      "the probe", "no probe taps",
      "no attention reported during the probe: does forward run layers that call observe()?"};
  if (!layers.reported(*taken, kWords, *health, *gate)) return;
  steps.probe_backoff().succeeded();
  analyse(std::move(taken), Source::kProbe);
}

void Monitor::Impl::end_step() {
  if (!taps.training()) return;
  taps.idle();
  steps.train_ends();
  std::shared_ptr<Capture> taken = taps.take();
  if (!taken) {
    steps.train_backoff().failed();
    return;
  }
  std::erase_if(taken->layers, [](const auto& entry) { return entry.second.spectrum.empty(); });
  static constexpr KnownLayers::Words kWords{
      "a training step", "no taps",
      "no attention reported during a measured step: is observe() called, and does the model run "
      "inside the step's scope?"};
  if (!layers.reported(*taken, kWords, *health, *gate)) return;
  steps.train_backoff().succeeded();
  drain();  // a probe of this very step may still be analysed
  analyse(std::move(taken), Source::kTrain);
}

void Monitor::Impl::analyse(std::shared_ptr<Capture> taken, Source source) {
  steps.analysing(source);
  analysis_thread.submit(std::move(taken), steps.current(), source);
}

std::vector<AblationReport> Monitor::Impl::verify() {
  if (!probe || closed || inherited()) return {};
  drain();
  CaptureInfo info = steps.current();
  info.wall_time = wall_clock();
  return ablations.verify_formed(*probe, info);
}

void Monitor::Impl::refuse_now(const std::string& what) const {
  refuse_inherited();
  const auto refuse = [&](const char* why) {
    throw std::invalid_argument("headscope " + what + ": " + why);
  };
  if (closed) refuse("the monitor is closed");
  if (!probe) refuse("no probe is set, whose forward runs the model; call set_probe first");
  if (step_is_open)
    refuse("a step is open; call it before begin_step, or after its scope has ended");
  if (!taps.at_rest()) refuse("the model is being measured; do not call it from within forward");
}

AblationResult Monitor::Impl::ablate(const AblationRequest& request) {
  refuse_now("ablate");
  drain();
  return ablations.ablate(*probe, request);
}

ScreenResult Monitor::Impl::screen(const ScreenRequest& request) {
  refuse_now("screen");
  drain();
  CaptureInfo info = steps.current();
  info.wall_time = wall_clock();
  return ScreenRunner(*probe, analysis, taps, ablations, *health).run(request, info);
}

void Monitor::Impl::close(double timeout_seconds) {
  if (closed || inherited()) return;
  analysis_thread.drain();
  gate->guarded(Fault::kAnalysis, [&] { analysis.flush(steps.current()); });
  taps.idle();
  taps.set_watch(nullptr);
  closed = true;
  sinks.close(timeout_seconds);
}

}  // namespace headscope
