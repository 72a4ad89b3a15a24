#include "csrc/monitor/analysis/verification.h"

#include <numeric>
#include <set>
#include <stdexcept>
#include <utility>

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

Verification Verification::of(const CircuitTracker::Due& due, ControlSets controls,
                              BehaviourMetric metric, const std::vector<HeadReading>& readings) {
  Verification made;
  made.pattern = due.pattern;
  made.metric = metric;
  made.heads = due.heads;
  made.passes.push_back(due.heads);
  made.passes.insert(made.passes.end(), controls.sets.begin(), controls.sets.end());
  made.passes.push_back(whole_layers(due.heads, readings));
  if (controls.sets.size() < kFewControls && due.heads.size() > 1) {
    for (const HeadId& id : due.heads) made.passes.push_back({id});
  }
  made.controls = std::move(controls);
  return made;
}

void Verification::sit(std::vector<double> now) {
  if (baseline.empty()) {
    baseline = std::move(now);
    now_.clear();
    return;
  }
  if (now.size() != baseline.size()) throw std::runtime_error("a sitting of another batch");
  now_ = std::move(now);
}

void Verification::enter(std::vector<double> loss) {
  for (size_t i = 0; i < now_.size(); ++i) loss[i] = baseline[i] + (loss[i] - now_[i]);
  losses.push_back(std::move(loss));
}

void Verification::judge(const VerdictRule& rule, AblationReport& report) const {
  const size_t sets = controls.sets.size();
  const auto first = losses.begin() + 1;
  AblationLosses all;
  all.baseline = baseline;
  all.ablated = losses[0];
  all.controls.assign(first, first + static_cast<int64_t>(sets));
  all.upper_bound = losses[1 + sets];
  report.heads = heads;
  report.metric = to_string(metric);
  judge_ablation(all, controls, rule, report);
  for (size_t i = 2 + sets; i < losses.size(); ++i)
    report.single_head_effects.push_back(mean(losses[i]) - report.baseline_loss);
}

}  // namespace headscope
