#include <ATen/ATen.h>

#include "csrc/monitor/edge/host_guard.h"
#include "csrc/monitor/monitor_impl.h"

namespace headscope {

bool Monitor::Impl::sit_verification(Verification& verification, bool within_budget) {
  const ScopedTimer timer(health->ablation_nanoseconds);
  pass_thread.store(std::this_thread::get_id());
  const std::shared_ptr<void> idle_again(nullptr, [this](void*) {
    set_mode(Mode::kIdle);
    ablated.clear();
  });
  const HostGuard guard;
  const std::shared_ptr<void> evaluation =
      host->enter_evaluation ? host->enter_evaluation() : nullptr;
  set_mode(Mode::kAblate);
  const auto losses_without = [&](const std::vector<HeadId>& heads) {
    const double start = budget.now();
    ablated.clear();
    for (const HeadId& id : heads) ablated[id.layer].push_back(id.head);
    auto losses = behaviour_losses([this](const at::Tensor& tokens) { return forward(tokens); },
                                   behaviours, verification.metric);
    if (within_budget) budget.spent(Budget::Work::kVerify, budget.now() - start);
    return losses;
  };
  verification.sit(losses_without({}));
  do {
    verification.enter(losses_without(verification.next()));
  } while (!verification.done() && (!within_budget || budget.allows(Budget::Work::kVerify)));
  return verification.done();
}

std::optional<Verification> Monitor::Impl::begin_verification(const CircuitTracker::Due& due,
                                                              BehaviourMetric metric) const {
  const auto last = analysis.last_probe();
  if (!last || due.heads.empty()) return std::nullopt;
  ControlOptions control_options = options.controls;
  control_options.seed += static_cast<uint32_t>(due.pattern);
  return Verification::of(due,
                          draw_control_sets(due.heads, last->heads, due.pattern, control_options),
                          metric, last->heads);
}

AblationReport Monitor::Impl::judged(const Verification& verification, const CaptureInfo& info) {
  const Pattern& pattern = analysis.patterns()[verification.pattern];
  AblationReport report;
  report.pattern = pattern.name;
  report.gate = verification.metric == pattern.metric;
  report.step = info.step;
  verification.judge(options.verdict, report);
  analysis.take_ablation(report, info.tokens, info.wall_time);
  return report;
}

void Monitor::Impl::verify_due(const CaptureInfo& info) {
  if (!probe.verify) return;
  const auto due = analysis.verification_due();
  // A circuit that has changed since its verification began is judged afresh.
  if (verifying && (!due || due->pattern != verifying->pattern || due->heads != verifying->heads))
    verifying.reset();
  if (!due) return;
  // A sitting is worth its baseline from two passes on.
  if (!budget.allows(Budget::Work::kVerify, 2)) {
    health->deferred.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!verify_backoff.ready()) return;
  const bool done = gate->guarded(Fault::kAblation, [&] {
    if (!verifying) verifying = begin_verification(*due, analysis.patterns()[due->pattern].metric);
    if (!verifying || !sit_verification(*verifying, /*within_budget=*/budget.bounded())) return;
    judged(*verifying, info);
    verifying.reset();
  });
  if (!done) verifying.reset();
  done ? verify_backoff.succeeded() : verify_backoff.failed();
}

std::vector<AblationReport> Monitor::Impl::verify_formed() {
  std::vector<AblationReport> all;
  if (!host || closed || inherited()) return all;
  drain();
  verifying.reset();
  CaptureInfo info = step;
  info.wall_time = wall_clock();
  gate->guarded(Fault::kAblation, [&] {
    for (const auto& due : analysis.formed_circuits()) {
      if (analysis.patterns()[due.pattern].metric == BehaviourMetric::kNone) continue;
      for (const auto metric : {BehaviourMetric::kPlantedLoss, BehaviourMetric::kRepeatedLoss}) {
        auto verification = begin_verification(due, metric);
        if (!verification) continue;
        sit_verification(*verification, /*within_budget=*/false);
        all.push_back(judged(*verification, info));
      }
    }
    analysis.flush(info);
  });
  return all;
}

}  // namespace headscope
