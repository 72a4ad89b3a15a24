#include "csrc/monitor/passes/behaviour.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>

#include "csrc/probe/group_table.h"
#include "csrc/probe/repeat_plan.h"

namespace headscope {
namespace {

constexpr size_t kFewestStretches = 8;
// Attempts draw from seeds this far apart: the probe's own batches take the numbers between.
constexpr int64_t kSeedsApart = 1000;

/// The distinct stretches of `period` tokens in the rows, first stretch of each row first.
std::vector<std::vector<int64_t>> distinct_stretches(const at::Tensor& rows_in, int64_t period) {
  const at::Tensor rows = rows_in.to(at::kCPU).contiguous();
  std::vector<std::vector<int64_t>> stretches;
  std::set<std::vector<int64_t>> seen;
  for (int64_t begin = 0; begin + period <= rows.size(1); begin += period) {
    for (int64_t n = 0; n < rows.size(0); ++n) {
      const int64_t* from = rows.const_data_ptr<int64_t>() + n * rows.size(1) + begin;
      std::vector<int64_t> stretch(from, from + period);
      if (seen.insert(stretch).second) stretches.push_back(std::move(stretch));
    }
  }
  return stretches;
}

/// What an attempt repeats, [M, P].
at::Tensor repeated_source(const ProbeOptions& options, int64_t period, int64_t attempt) {
  if (!options.held_out.defined())
    return random_tokens(options.examples, period, options.token_low, options.token_high,
                         options.seed + 2 + static_cast<uint32_t>(kSeedsApart * attempt));
  const auto stretches = distinct_stretches(options.held_out, period);
  const int64_t have = std::ssize(stretches), count = std::min(options.examples, have);
  at::Tensor source = at::empty({count, period}, at::kLong);
  for (int64_t n = 0; n < count; ++n) {
    const auto& stretch = stretches[static_cast<size_t>((attempt * count + n) % have)];
    std::copy(stretch.begin(), stretch.end(), source.data_ptr<int64_t>() + n * period);
  }
  return source;
}

}  // namespace

void check_held_out(const ProbeOptions& options) {
  if (!options.held_out.defined()) return;
  const int64_t period = repeat_period(options);
  const size_t have = distinct_stretches(options.held_out, period).size();
  if (have >= kFewestStretches) return;
  throw std::invalid_argument(
      "headscope probe: held_out has " + std::to_string(have) + " distinct stretches of " +
      std::to_string(period) + " tokens, and a verdict needs " + std::to_string(kFewestStretches) +
      " or more: give more rows of different text, or leave it undefined for random tokens");
}

AblationBatch behaviour_batch(const ProbeOptions& options, BehaviourMetric metric,
                              int64_t attempt) {
  AblationBatch batch;
  batch.micro_batch = options.micro_batch;
  if (metric == BehaviourMetric::kPlantedLoss) {
    const InductionBatch planted =
        induction_batch({.examples = options.examples,
                         .context = options.context,
                         .token_low = options.token_low,
                         .token_high = options.token_high,
                         .seed = options.seed + 1 + static_cast<uint32_t>(kSeedsApart * attempt),
                         .window = options.window});
    batch.tokens = planted.tokens;
    batch.targets = int64_tensor(planted.target_token, {options.examples, 1});
    batch.positions = at::full({options.examples, 1}, options.context - 1, at::kLong);
    return batch;
  }
  const int64_t period = repeat_period(options), first = period + 1;
  const at::Tensor source = repeated_source(options, period, attempt);
  batch.tokens = repeated_block(source, source.size(0), options.context, period);
  batch.targets = batch.tokens.narrow(1, first, options.context - first).contiguous();
  batch.positions = at::arange(first - 1, options.context - 1, at::kLong)
                        .expand(batch.targets.sizes())
                        .contiguous();
  return batch;
}

}  // namespace headscope
