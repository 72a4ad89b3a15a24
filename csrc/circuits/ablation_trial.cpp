#include <algorithm>
#include <set>
#include <stdexcept>
#include <utility>

#include "csrc/circuits/judging.h"
#include "headscope/ablation.h"

namespace headscope {
namespace {

// With fewer control sets than this the heads are also ablated one by one.
constexpr size_t kFewControls = 8;

}  // namespace

AblationTrial AblationTrial::of(std::vector<HeadId> heads, std::span<const HeadReading> readings,
                                size_t pattern, const ControlOptions& controls,
                                const VerdictRule& rule, double level_left) {
  AblationTrial trial;
  trial.controls = draw_control_sets(heads, readings, pattern, controls);
  trial.labels = draw_label_sets(heads, readings, rule.most_label_sets, rule.seed + controls.seed);
  trial.labelled_examples = rule.labelled_examples;
  trial.test = LabelTest::plan(level_left, trial.labels.exist, rule);
  std::set<int32_t> layers;
  for (const HeadId& id : heads) layers.insert(id.layer);
  for (const HeadReading& reading : readings)
    if (layers.contains(reading.id.layer)) trial.whole_layers.push_back(reading.id);
  trial.heads = std::move(heads);
  return trial;
}

std::optional<AblationTrial::Pass> AblationTrial::next() const {
  const size_t all = losses.baseline.size();
  const size_t few = std::min(all, static_cast<size_t>(labelled_examples));
  if (all == 0) throw std::logic_error("an ablation begins with the losses without ablation");
  if (losses.ablated.empty()) return Pass{heads, all};
  if (!has_effect) return std::nullopt;
  if (losses.controls.size() < controls.sets.size())
    return Pass{controls.sets[losses.controls.size()], all};
  if (beats_controls && test.possible() &&
      test.after(std::ssize(losses.labelled), circuits::as_strong(losses)) ==
          LabelTest::Answer::kOpen)
    return Pass{labels.sets[losses.labelled.size()], few};
  if (losses.upper_bound.empty() && whole_layers.size() > heads.size())
    return Pass{whole_layers, few};
  if (controls.sets.size() < kFewControls && heads.size() > 1 &&
      losses.single_heads.size() < heads.size())
    return Pass{{heads[losses.single_heads.size()]}, few};
  return std::nullopt;
}

void AblationTrial::enter(std::vector<double> losses_of_pass, const VerdictRule& rule) {
  const auto pass = next();
  if (!pass) throw std::logic_error("an ablation that is done takes no more losses");
  if (losses_of_pass.size() != pass->examples)
    throw std::invalid_argument("an ablation's pass over " + std::to_string(pass->examples) +
                                " examples gave " + std::to_string(losses_of_pass.size()) +
                                " losses");
  if (losses.ablated.empty())
    losses.ablated = std::move(losses_of_pass);
  else if (losses.controls.size() < controls.sets.size())
    losses.controls.push_back(std::move(losses_of_pass));
  else if (pass->heads.size() == heads.size())
    losses.labelled.push_back(std::move(losses_of_pass));
  else if (losses.upper_bound.empty() && pass->heads == whole_layers)
    losses.upper_bound = std::move(losses_of_pass);
  else
    losses.single_heads.push_back(std::move(losses_of_pass));
  if (losses.controls.empty() && losses.labelled.empty())
    has_effect = circuits::has_effect(losses, rule);
  if (has_effect && losses.controls.size() == controls.sets.size() && losses.labelled.empty())
    beats_controls = circuits::beats_controls(losses, rule);
}

void AblationTrial::judge(const VerdictRule& rule, AblationReport& report) const {
  report.heads = heads;
  judge_ablation(losses, controls, labels, test, rule, report);
}

}  // namespace headscope
