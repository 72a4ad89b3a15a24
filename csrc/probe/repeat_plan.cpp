#include "csrc/probe/repeat_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "csrc/probe/group_table.h"
#include "headscope/snapshot.h"

namespace headscope {

int64_t repeat_period(const ProbeOptions& options) {
  const int64_t half = options.context / 2;
  return options.window > 0 ? std::min(half, options.window - 1) : half;
}

RepeatPlan plan_repeat(const ProbeOptions& options) {
  const int64_t count = std::min(options.examples, RepeatPlan::kRows), context = options.context;
  const int64_t period = repeat_period(options);
  RepeatPlan plan;
  plan.period = period;
  plan.tokens = repeated_block(
      random_tokens(count, period, options.token_low, options.token_high, options.seed + 4), count,
      context, period);
  std::vector<int64_t> second_copy(static_cast<size_t>(period - 1));
  std::iota(second_copy.begin(), second_copy.end(), period);
  const std::vector<int64_t> queries =
      evenly_spaced(second_copy, static_cast<size_t>(RepeatPlan::kQueries));
  GroupTable table;
  std::vector<int64_t> rows;
  for (int64_t n = 0; n < count; ++n) {
    for (const int64_t t : queries) {
      rows.push_back(t);
      table.add(t - period + 1);
    }
  }
  plan.rows = int64_tensor(rows, {count, static_cast<int64_t>(queries.size())});
  plan.targets = table.targets();
  plan.offsets = table.offsets();
  return plan;
}

double repeat_gap(const at::Tensor& logits, const RepeatPlan& plan) {
  const at::Tensor& tokens = plan.tokens;
  if (!logits.defined() || logits.dim() != 3 || logits.size(0) != tokens.size(0) ||
      logits.size(1) != tokens.size(1)) {
    return kNaN;
  }
  const int64_t period = plan.period;
  const at::Tensor scores = logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
  const auto loss = [&](int64_t first) {
    const at::Tensor wanted = tokens.narrow(1, first, period - 1).to(logits.device());
    const at::Tensor asked = scores.narrow(1, first - 1, period - 1);
    const at::Tensor chosen = asked.gather(2, wanted.unsqueeze(2)).squeeze(2);
    return (at::logsumexp(asked, 2) - chosen).mean(at::kDouble).item<double>();
  };
  return loss(1) - loss(period + 1);
}

}  // namespace headscope
