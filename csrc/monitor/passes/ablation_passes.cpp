#include "csrc/monitor/passes/ablation_passes.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "csrc/probe/group_table.h"
#include "headscope/random_state.h"

namespace headscope {
namespace {

at::Tensor checked_logits(const at::Tensor& logits, const at::Tensor& tokens, int64_t target) {
  if (!logits.defined() || logits.dim() != 3 || logits.size(0) != tokens.size(0) ||
      logits.size(1) != tokens.size(1)) {
    throw std::runtime_error(
        c10::str("forward must return logits [N, T, V] for an ablation, got ",
                 logits.defined() ? c10::str(logits.sizes()) : std::string("no tensor"),
                 " for tokens ", tokens.sizes()));
  }
  if (logits.size(2) <= target)
    throw std::runtime_error(c10::str("forward returned logits of ", logits.size(2),
                                      " tokens, and a target is ", target,
                                      "; return the whole vocabulary"));
  return logits;
}

/// The first of the consecutive positions that all rows score alike; -1: they differ.
int64_t common_run(const at::Tensor& positions) {
  if (!positions.defined() || positions.numel() == 0) return -1;
  const int64_t first = positions[0][0].item<int64_t>();
  const at::Tensor run = at::arange(first, first + positions.size(1), positions.options());
  return positions.equal(run.expand_as(positions)) ? first : -1;
}

/// Of N rows the partner of each, one of M: along a random cycle of the N, or of others in turn.
at::Tensor partners_of(int64_t rows, int64_t others, bool own, uint32_t seed) {
  RandomState random(seed);
  const auto order = random.permutation(others);
  std::vector<int64_t> partners(static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    const auto at = static_cast<size_t>(i % others);
    partners[static_cast<size_t>(own ? order[at] : i)] =
        own ? order[(at + 1) % order.size()] : order[at];
  }
  return int64_tensor(partners, {rows});
}

void append(std::vector<double>& to, const at::Tensor& values) {
  const at::Tensor on_host = values.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* data = on_host.const_data_ptr<double>();
  to.insert(to.end(), data, data + on_host.numel());
}

}  // namespace

AblationPasses::AblationPasses(Taps& taps, const ProbeHost& host, const AblationBatch& batch,
                               ReplacementPlan plan)
    : host_(host),
      batch_(batch),
      plan_(std::move(plan)),
      forward_([this](const at::Tensor& tokens) { return pass_.forward(host_.forward, tokens); }),
      run_of_(common_run(batch.positions)),
      largest_target_(batch.targets.defined() ? batch.targets.max().item<int64_t>() : -1),
      ablation_(plan_.replacement, plan_.positions),
      pass_(taps),
      evaluation_(host) {
  if (plan_.replacement == Replacement::kResample) {
    const bool own = !plan_.reference.defined();
    const int64_t rows = batch.tokens.size(0);
    partners_ = partners_of(rows, own ? rows : plan_.reference.size(0), own, plan_.resample_seed);
  }
  pass_.ablate(ablation_);
}

std::vector<double> AblationPasses::losses(const std::vector<HeadId>& heads, size_t examples) {
  return std::move(run(heads, examples, false).examples[AblationMeasure::kLoss]);
}

AblationPass AblationPasses::measures(const std::vector<HeadId>& heads, size_t examples) {
  return run(heads, examples, true);
}

AblationPass AblationPasses::baseline() {
  learns_ = true;
  AblationPass pass = run({}, 0, true);
  learns_ = false;
  return pass;
}

AblationPass AblationPasses::run(const std::vector<HeadId>& heads, size_t examples,
                                 bool all_measures) {
  AblationPass pass;
  pass.heads = heads;
  if (!heads.empty() && plan_.replacement == Replacement::kMean) learn_means_of_reference();
  const int64_t all = batch_.tokens.size(0),
                rows = examples == 0 ? all : std::min(all, static_cast<int64_t>(examples));
  for (int64_t begin = 0; begin < rows; begin += batch_.micro_batch) {
    const int64_t count = std::min(batch_.micro_batch, rows - begin);
    if (!heads.empty() && plan_.replacement == Replacement::kResample)
      learn_rows(heads, begin, count);
    if (learns_) {
      ablation_.learn_means();
    } else {
      ablation_.replace(
          heads, batch_.tokens.narrow(0, begin, count),
          batch_.positions.defined() ? batch_.positions.narrow(0, begin, count) : at::Tensor());
    }
    score(begin, count, all_measures, pass);
    ablation_.check();
  }
  return pass;
}

void AblationPasses::learn_means_of_reference() {
  if (!plan_.reference.defined() || learnt_reference_) return;
  ablation_.forget_means();
  ablation_.learn_means();
  for (const at::Tensor& chunk : plan_.reference.split(batch_.micro_batch)) forward_(chunk);
  learnt_reference_ = true;
}

void AblationPasses::learn_rows(const std::vector<HeadId>& heads, int64_t begin, int64_t count) {
  const at::Tensor& source = plan_.reference.defined() ? plan_.reference : batch_.tokens;
  const at::Tensor rows = partners_.narrow(0, begin, count).to(source.device());
  ablation_.learn_rows(heads);
  forward_(source.index_select(0, rows));
  ablation_.check();
}

void AblationPasses::score(int64_t begin, int64_t count, bool all_measures, AblationPass& pass) {
  const at::Tensor tokens = batch_.tokens.narrow(0, begin, count);
  if (batch_.loss) {
    const at::Tensor losses = batch_.loss(forward_, tokens, batch_.rows.narrow(0, begin, count));
    if (!losses.defined() || losses.dim() != 1 || losses.size(0) != count)
      throw std::runtime_error(c10::str(
          "the loss of an ablation must return one value for each row, [", count, "], got ",
          losses.defined() ? c10::str(losses.sizes()) : std::string("no tensor")));
    append(pass.examples[AblationMeasure::kLoss], losses);
    return;
  }
  const at::Tensor logits = checked_logits(forward_(tokens), tokens, largest_target_);
  const QuietScope quiet;
  const at::Tensor targets =
      batch_.targets.narrow(0, begin, count).to(logits.device()).unsqueeze(-1);  // [n, S, 1]
  const int64_t scored = targets.size(1), vocabulary = logits.size(2);
  const at::Tensor own = run_of_ >= 0 ? logits.narrow(1, run_of_, scored)
                                      : logits.gather(1, batch_.positions.narrow(0, begin, count)
                                                             .to(logits.device())
                                                             .unsqueeze(-1)
                                                             .expand({count, scored, vocabulary}));
  // In f32 the error of a loss is some 1e-6 nats, far below any effect of interest.
  const at::Tensor scores = own.scalar_type() == at::kDouble ? own : own.to(at::kFloat);
  const at::Tensor loss =
      (at::logsumexp(scores, -1) - scores.gather(-1, targets).squeeze(-1)).to(at::kDouble);
  append(pass.examples[AblationMeasure::kLoss], loss.mean(1));
  if (!all_measures) return;
  const at::Tensor logit = own.gather(-1, targets);
  const at::Tensor earlier = at::arange(vocabulary, targets.options()) < targets;
  const at::Tensor rank =
      (own > logit).logical_or((own == logit).logical_and(earlier)).sum(-1);  // [n, S]
  // Comparisons with NaN are false: without this such a row would be right.
  const at::Tensor known = loss.isfinite();
  const auto within = [&](int64_t k) {
    return (rank < k).logical_and(known).to(at::kDouble).mean(1);
  };
  append(pass.examples[AblationMeasure::kTop1], within(1));
  append(pass.examples[AblationMeasure::kTop5], within(5));
  append(pass.examples[AblationMeasure::kTargetLogit], logit.squeeze(-1).to(at::kDouble).mean(1));
}

}  // namespace headscope
