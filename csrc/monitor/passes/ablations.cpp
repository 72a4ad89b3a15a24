#include "csrc/monitor/passes/ablations.h"

#include <algorithm>

#include "csrc/monitor/passes/ablation_passes.h"

namespace headscope {

Ablations::Ablations(const Options& options, Analysis& analysis, Taps& taps, Steps& steps,
                     HealthCounters& health, FaultGate& gate)
    : controls_(options.controls),
      rule_(options.verdict),
      analysis_(analysis),
      taps_(taps),
      steps_(steps),
      health_(health),
      gate_(gate) {}

void Ablations::go_on(const ProbeSetup& probe, const CaptureInfo& info) {
  if (!probe.options.verify) return;
  const auto due = analysis_.verification_due();
  // A circuit that has changed since its verification began is judged afresh.
  if (in_progress_ &&
      (!due || due->pattern != in_progress_->pattern || due->heads != in_progress_->trial.heads))
    in_progress_.reset();
  if (!due) return;
  // A sitting is worth its baseline from two passes on.
  if (!steps_.budget().allows(Budget::Work::kVerify, 2)) {
    health_.deferred.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  if (!steps_.verify_backoff().ready()) return;
  const bool done = gate_.guarded(Fault::kAblation, [&] {
    if (!in_progress_) in_progress_ = begin(*due, analysis_.patterns()[due->pattern].metric);
    if (!in_progress_ || !sit(probe, *in_progress_, /*within_budget=*/steps_.budget().bounded()))
      return;
    judge(*in_progress_, info);
    in_progress_.reset();
  });
  if (!done) in_progress_.reset();
  done ? steps_.verify_backoff().succeeded() : steps_.verify_backoff().failed();
}

std::vector<AblationReport> Ablations::verify_formed(const ProbeSetup& probe,
                                                     const CaptureInfo& info) {
  std::vector<AblationReport> all;
  in_progress_.reset();
  gate_.guarded(Fault::kAblation, [&] {
    for (const auto& due : analysis_.formed_circuits()) {
      for (const auto metric : {BehaviourMetric::kPlantedLoss, BehaviourMetric::kRepeatedLoss}) {
        auto verification = begin(due, metric);
        if (!verification) continue;
        sit(probe, *verification, /*within_budget=*/false);
        all.push_back(judge(*verification, info));
      }
    }
    analysis_.flush(info);
  });
  return all;
}

std::optional<Verification> Ablations::begin(const CircuitTracker::Due& due,
                                             BehaviourMetric metric) const {
  const auto last = analysis_.last_probe();
  if (!last || due.heads.empty()) return std::nullopt;
  ControlOptions controls = controls_;
  controls.seed += static_cast<uint32_t>(due.pattern + 1000 * static_cast<size_t>(due.attempt));
  // Beside the metric that decides, a test of its own.
  const bool decides = metric == analysis_.patterns()[due.pattern].metric;
  const double level_left = decides ? rule_.level - due.level_spent : rule_.level;
  return Verification{due.pattern, metric, due.attempt,
                      AblationTrial::of(due.heads, last->heads, due.pattern, controls, rule_,
                                        std::max(level_left, 0.0))};
}

bool Ablations::sit(const ProbeSetup& probe, Verification& verification, bool within_budget) {
  const ScopedTimer timer(health_.ablation_nanoseconds);
  Budget& budget = steps_.budget();
  if (!batch_ || batch_->attempt != verification.attempt || batch_->metric != verification.metric)
    batch_ =
        AttemptBatch{verification.attempt, verification.metric,
                     behaviour_batch(probe.options, verification.metric, verification.attempt)};
  AblationPasses passes(taps_, probe.host, batch_->batch);
  const auto losses_without = [&](const std::vector<HeadId>& heads, size_t examples) {
    const double start = budget.now();
    auto losses = passes.losses(heads, examples);
    if (within_budget) budget.spent(Budget::Work::kVerify, budget.now() - start);
    return losses;
  };
  verification.sit(losses_without({}, 0));
  auto next = verification.trial.next();
  while (next) {
    if (verification.wants_own())
      verification.enter_own(losses_without(verification.trial.heads, next->examples));
    verification.enter(losses_without(next->heads, next->examples), rule_);
    next = verification.trial.next();
    if (within_budget && !budget.allows(Budget::Work::kVerify)) break;
  }
  return !next;
}

AblationReport Ablations::judge(const Verification& verification, const CaptureInfo& info) {
  const Pattern& pattern = analysis_.patterns()[verification.pattern];
  AblationReport report;
  report.pattern = pattern.name;
  report.gate = verification.metric == pattern.metric;
  report.step = info.step;
  report.metric = to_string(verification.metric);
  verification.trial.judge(rule_, report);
  analysis_.take_ablation(report, info.tokens, info.wall_time);
  return report;
}

}  // namespace headscope
