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
  using Kind = Pass::Kind;
  const size_t all = losses.baseline.size();
  const size_t few = std::min(all, static_cast<size_t>(labelled_examples));
  if (all == 0) throw std::logic_error("an ablation begins with the losses without ablation");
  if (losses.ablated.empty()) return Pass{Kind::kHeads, heads, all};
  if (!has_effect) return std::nullopt;
  if (losses.controls.size() < controls.sets.size())
    return Pass{Kind::kControl, controls.sets[losses.controls.size()], all};
  if (beats_controls && test.possible() &&
      test.after(std::ssize(losses.labelled), circuits::as_strong(losses)) ==
          LabelTest::Answer::kOpen)
    return Pass{Kind::kLabelSet, labels.sets[losses.labelled.size()], few};
  if (losses.upper_bound.empty() && whole_layers.size() > heads.size())
    return Pass{Kind::kWholeLayers, whole_layers, few};
  if (controls.sets.size() < kFewControls && heads.size() > 1 &&
      losses.single_heads.size() < heads.size())
    return Pass{Kind::kSingleHead, {heads[losses.single_heads.size()]}, few};
  return std::nullopt;
}

void AblationTrial::enter(std::vector<double> losses_of_pass, const VerdictRule& rule) {
  const auto pass = next();
  if (!pass) throw std::logic_error("an ablation that is done takes no more losses");
  if (losses_of_pass.size() != pass->examples)
    throw std::invalid_argument("an ablation's pass over " + std::to_string(pass->examples) +
                                " examples gave " + std::to_string(losses_of_pass.size()) +
                                " losses");
  switch (pass->kind) {
    case Pass::Kind::kHeads:
      losses.ablated = std::move(losses_of_pass);
      break;
    case Pass::Kind::kControl:
      losses.controls.push_back(std::move(losses_of_pass));
      break;
    case Pass::Kind::kLabelSet:
      losses.labelled.push_back(std::move(losses_of_pass));
      break;
    case Pass::Kind::kWholeLayers:
      losses.upper_bound = std::move(losses_of_pass);
      break;
    case Pass::Kind::kSingleHead:
      losses.single_heads.push_back(std::move(losses_of_pass));
      break;
  }
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
