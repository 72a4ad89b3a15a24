#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "csrc/monitor/passes/ablation_passes.h"
#include "csrc/monitor/passes/ablation_request.h"
#include "csrc/monitor/passes/ablations.h"

namespace headscope {
namespace {

/// What control sets are drawn from.
struct Drawn {
  std::vector<HeadReading> readings;
  size_t pattern = 0;
};

/// Of the request's pattern as the last probe saw it; without a pattern every head is eligible, and
/// its norm that of the batch.
Drawn drawn_from(const AblationRequest& request, const AblationPasses& passes,
                 const Analysis& analysis) {
  Drawn drawn;
  if (!request.pattern.empty()) {
    drawn.pattern = pattern_number(request.pattern, analysis.patterns());
    const auto last = analysis.last_probe();
    if (!last)
      throw std::invalid_argument("headscope ablate: controls for the pattern '" + request.pattern +
                                  "' are drawn by the last probe's readings, and none has run; "
                                  "leave pattern empty to draw from all other heads");
    drawn.readings = last->heads;
    return drawn;
  }
  for (const auto& [layer, count] : passes.heads_in()) {
    for (int64_t head = 0; head < count; ++head) {
      HeadReading& reading = drawn.readings.emplace_back();
      reading.id = {static_cast<int32_t>(layer), static_cast<int32_t>(head)};
      reading.output_norm = passes.norm(reading.id);
      reading.patterns = {{.selectivity = 0}};
    }
  }
  return drawn;
}

/// The reference's draws in the request's order.
std::vector<std::vector<HeadId>> reference_draws(const AblationRequest& request,
                                                 const std::map<int64_t, int64_t>& heads_in) {
  std::vector<std::vector<HeadId>> draws;
  if (request.reference_seeds.empty() && request.reference_sweep == nullptr) return draws;
  const int64_t heads = heads_in.at(request.heads.front().layer);
  for (const HeadId id : request.heads)
    if (heads_in.at(id.layer) != heads)
      throw std::invalid_argument(
          "headscope ablate: the reference draws from layers of one size, and layer " +
          std::to_string(request.heads.front().layer) + " has " + std::to_string(heads) +
          " heads, layer " + std::to_string(id.layer) + " " +
          std::to_string(heads_in.at(id.layer)) +
          "; leave reference_seeds and reference_sweep out");
  for (const uint32_t seed : request.reference_seeds) {
    RandomState random(seed);
    draws.push_back(matched_random_reference(request.heads, heads, random));
  }
  if (request.reference_sweep != nullptr)
    draws.push_back(matched_random_reference(request.heads, heads, *request.reference_sweep));
  return draws;
}

ByMeasure<Specificity> specificities(const AblationPass& pass,
                                     std::span<const AblationPass> controls) {
  ByMeasure<Specificity> result;
  if (controls.empty()) return result;
  for (const AblationMeasure measure : kAblationMeasures) {
    double sum = 0;
    for (const AblationPass& control : controls) sum += control.measures[measure].change;
    result[measure] =
        specificity(pass.measures[measure].change, sum / static_cast<double>(controls.size()));
  }
  return result;
}

ByMeasure<MeasureSpread> spread_of(std::span<const AblationPass> passes) {
  ByMeasure<MeasureSpread> result;
  if (passes.empty()) return result;
  const auto count = static_cast<double>(passes.size());
  for (const AblationMeasure measure : kAblationMeasures) {
    double sum = 0, changes = 0, squares = 0;
    for (const AblationPass& pass : passes) {
      sum += pass.measures[measure].mean;
      changes += pass.measures[measure].change;
    }
    const double mean = sum / count;
    for (const AblationPass& pass : passes) {
      const double away = pass.measures[measure].mean - mean;
      squares += away * away;
    }
    result[measure] = {mean, changes / count,
                       passes.size() < 2 ? kNaN : std::sqrt(squares / count)};
  }
  return result;
}

}  // namespace

AblationResult Ablations::ablate(const ProbeSetup& probe, const AblationRequest& request) {
  using Kind = AblationTrial::Pass::Kind;
  const ScopedTimer timer(health_.ablation_nanoseconds);
  const RequestedBatch requested = requested_batch(request, probe);
  AblationPasses passes(
      taps_, probe.host, requested.batch,
      {request.replacement, request.positions, request.reference, request.resample_seed});
  AblationResult result;
  result.rows = requested.rows;
  result.baseline = passes.baseline();
  compare_passes(result.baseline, request.rule, /*intervals=*/false, result.baseline);
  check_heads(request.heads, passes.heads_in());

  const Drawn drawn = drawn_from(request, passes, analysis_);
  AblationTrial trial = AblationTrial::of(request.heads, drawn.readings, drawn.pattern,
                                          request.controls, request.rule, request.rule.level);
  const auto draws = reference_draws(request, passes.heads_in());
  const auto run = [&](const std::vector<HeadId>& heads, size_t examples, bool intervals) {
    AblationPass pass = passes.measures(heads, examples);
    compare_passes(result.baseline, request.rule, intervals, pass);
    return pass;
  };
  const auto enter = [&](Kind kind, AblationPass pass) {
    if (kind == Kind::kHeads)
      result.ablated = std::move(pass);
    else if (kind == Kind::kControl)
      result.controls.push_back(std::move(pass));
    else if (kind == Kind::kLabelSet)
      result.label_sets.push_back(std::move(pass));
    else if (kind == Kind::kWholeLayers)
      result.whole_layers.push_back(std::move(pass));
    else
      result.single_heads.push_back(std::move(pass));
  };
  constexpr AblationMeasure kLoss = AblationMeasure::kLoss;
  trial.losses.baseline = result.baseline.examples[kLoss];
  // On all rows what was asked for; the trial then asks for none of it.
  if (request.single_heads)
    for (const HeadId id : request.heads) {
      enter(Kind::kSingleHead, run({id}, 0, true));
      trial.losses.single_heads.push_back(result.single_heads.back().examples[kLoss]);
    }
  if (request.whole_layers) {
    enter(Kind::kWholeLayers, run(trial.whole_layers, 0, true));
    trial.losses.upper_bound = result.whole_layers.back().examples[kLoss];
  }
  while (const auto next = trial.next()) {
    AblationPass pass = run(next->heads, next->examples, next->kind != Kind::kLabelSet);
    trial.enter(pass.examples[kLoss], request.rule);
    enter(next->kind, std::move(pass));
  }
  // What the verdict needs no more and the request wants all the same.
  while (request.always_controls && result.controls.size() < trial.controls.sets.size()) {
    enter(Kind::kControl, run(trial.controls.sets[result.controls.size()], 0, true));
    trial.losses.controls.push_back(result.controls.back().examples[kLoss]);
  }
  for (const auto& heads : draws) result.reference_draws.push_back(run(heads, 0, true));

  result.specificity = specificities(result.ablated, result.controls);
  for (const AblationPass& draw : result.reference_draws)
    result.reference_specificity.push_back(specificities(result.ablated, {&draw, 1}));
  result.reference_spread = spread_of(result.reference_draws);
  result.report.pattern = request.pattern;
  result.report.metric = metric_of(request);
  trial.judge(request.rule, result.report);
  return result;
}

}  // namespace headscope
