#include <ATen/ATen.h>

#include <numeric>
#include <set>

#include "csrc/monitor/host_guard.h"
#include "csrc/monitor/monitor_impl.h"

namespace headscope {
namespace {

// With fewer control sets than this the heads are also ablated one by one.
constexpr size_t kFewControls = 8;

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// Every head of the layers that `heads` lie in: the upper bound.
std::vector<HeadId> whole_layers(const std::vector<HeadId>& heads,
                                 const std::vector<HeadReading>& all) {
  std::set<int32_t> layers;
  for (const HeadId& id : heads) layers.insert(id.layer);
  std::vector<HeadId> chosen;
  for (const HeadReading& reading : all) {
    if (layers.contains(reading.id.layer)) chosen.push_back(reading.id);
  }
  return chosen;
}

}  // namespace

std::vector<AblationReport> Monitor::Impl::ablate_circuit(const CircuitTracker::Due& due,
                                                          const CaptureInfo& info,
                                                          Metrics metrics) {
  const ScopedTimer timer(health->ablation_nanoseconds);
  const auto last = analysis.last_probe();
  if (!last || due.heads.empty()) return {};
  const Pattern& pattern = analysis.patterns()[due.pattern];
  ControlOptions control_options = options.controls;
  control_options.seed += static_cast<uint32_t>(due.pattern);
  const ControlSets controls =
      draw_control_sets(due.heads, last->heads, due.pattern, control_options);

  pass_thread.store(std::this_thread::get_id());
  const std::shared_ptr<void> idle_again(nullptr, [this](void*) {
    set_mode(Mode::kIdle);
    ablated.clear();
  });
  const HostGuard guard;
  const std::shared_ptr<void> evaluation =
      host->enter_evaluation ? host->enter_evaluation() : nullptr;
  set_mode(Mode::kAblate);
  const auto losses_without = [&](const std::vector<HeadId>& heads, BehaviourMetric metric) {
    ablated.clear();
    for (const HeadId& id : heads) ablated[id.layer].push_back(id.head);
    return behaviour_losses([this](const at::Tensor& tokens) { return forward(tokens); },
                            behaviours, metric);
  };

  std::vector<AblationReport> reports;
  for (const BehaviourMetric metric :
       {BehaviourMetric::kPlantedLoss, BehaviourMetric::kRepeatedLoss}) {
    const bool gate_metric = metric == pattern.metric;
    if (!gate_metric && metrics == Metrics::kGateOnly) continue;
    AblationReport report;
    report.pattern = pattern.name;
    report.metric = to_string(metric);
    report.gate = gate_metric;
    report.step = info.step;
    report.heads = due.heads;
    AblationLosses losses;
    losses.baseline = losses_without({}, metric);
    losses.ablated = losses_without(due.heads, metric);
    for (const auto& set : controls.sets) losses.controls.push_back(losses_without(set, metric));
    losses.upper_bound = losses_without(whole_layers(due.heads, last->heads), metric);
    judge_ablation(losses, controls, options.verdict, report);
    if (controls.sets.size() < kFewControls && due.heads.size() > 1) {
      for (const HeadId& id : due.heads) {
        report.single_head_effects.push_back(mean(losses_without({id}, metric)) -
                                             report.baseline_loss);
      }
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

void Monitor::Impl::verify_due(const CaptureInfo& info) {
  if (!probe.verify) return;
  const auto due = analysis.verification_due();
  if (!due || !verify_backoff.ready()) return;
  const bool done = gate->guarded(Fault::kAblation, [&] {
    for (const AblationReport& report : ablate_circuit(*due, info, Metrics::kGateOnly)) {
      analysis.take_ablation(report, info.tokens, info.wall_time);
    }
  });
  done ? verify_backoff.succeeded() : verify_backoff.failed();
}

std::vector<AblationReport> Monitor::Impl::verify_formed() {
  std::vector<AblationReport> all;
  if (!host || closed) return all;
  drain();
  CaptureInfo info = step;
  info.wall_time = wall_clock();
  gate->guarded(Fault::kAblation, [&] {
    for (const auto& due : analysis.formed_circuits()) {
      if (analysis.patterns()[due.pattern].metric == BehaviourMetric::kNone) continue;
      for (AblationReport& report : ablate_circuit(due, info, Metrics::kAll)) {
        analysis.take_ablation(report, info.tokens, info.wall_time);
        all.push_back(std::move(report));
      }
    }
    analysis.flush(info);
  });
  return all;
}

}  // namespace headscope
