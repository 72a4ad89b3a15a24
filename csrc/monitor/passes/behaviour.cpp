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

at::Tensor checked_logits(const ForwardFunction& forward, const at::Tensor& tokens) {
  const at::Tensor logits = forward(tokens);
  if (!logits.defined() || logits.dim() != 3 || logits.size(0) != tokens.size(0) ||
      logits.size(1) != tokens.size(1)) {
    throw std::runtime_error(
        c10::str("forward must return logits [N, T, V] for verification, got ",
                 logits.defined() ? c10::str(logits.sizes()) : std::string("no tensor"),
                 " for tokens ", tokens.sizes()));
  }
  return logits;
}

at::Tensor negative_log_likelihood(const at::Tensor& logits, const at::Tensor& targets) {
  const at::Tensor log_probability = at::log_softmax(logits.to(at::kDouble), -1);
  return -log_probability.gather(-1, targets.to(logits.device()).unsqueeze(-1)).squeeze(-1);
}

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
      std::to_string(period) + " tokens, and a verdict needs " +
      std::to_string(kFewestStretches) +
      " or more: give more rows of different text, or leave it undefined for random tokens");
}

BehaviourBatches behaviour_batches(const ProbeOptions& options, int64_t attempt) {
  BehaviourBatches batches;
  batches.micro_batch = options.micro_batch;
  batches.planted = induction_batch(
      {.examples = options.examples,
       .context = options.context,
       .token_low = options.token_low,
       .token_high = options.token_high,
       .seed = options.seed + 1 + static_cast<uint32_t>(kSeedsApart * attempt),
       .window = options.window});
  batches.period = repeat_period(options);
  const at::Tensor source = repeated_source(options, batches.period, attempt);
  batches.repeated = repeated_block(source, source.size(0), options.context, batches.period);
  return batches;
}

std::vector<double> behaviour_losses(const ForwardFunction& forward,
                                     const BehaviourBatches& batches, BehaviourMetric metric,
                                     size_t examples) {
  const bool planted = metric == BehaviourMetric::kPlantedLoss;
  const at::Tensor& tokens = planted ? batches.planted.tokens : batches.repeated;
  const int64_t context = tokens.size(1), first = batches.period + 1;
  const at::Tensor wanted = int64_tensor(
      batches.planted.target_token, {static_cast<int64_t>(batches.planted.target_token.size())});
  const int64_t rows = examples == 0
                           ? tokens.size(0)
                           : std::min(tokens.size(0), static_cast<int64_t>(examples));
  std::vector<double> losses;
  for (int64_t begin = 0; begin < rows; begin += batches.micro_batch) {
    const int64_t count = std::min(batches.micro_batch, rows - begin);
    const at::Tensor chunk = tokens.narrow(0, begin, count);
    const at::Tensor logits = checked_logits(forward, chunk);
    const at::Tensor loss =
        planted
            ? negative_log_likelihood(logits.select(1, context - 1), wanted.narrow(0, begin, count))
            : negative_log_likelihood(logits.narrow(1, first - 1, context - first),
                                      chunk.narrow(1, first, context - first))
                  .mean(1);
    const at::Tensor on_host = loss.to(at::kCPU).contiguous();
    const double* data = on_host.const_data_ptr<double>();
    losses.insert(losses.end(), data, data + count);
  }
  return losses;
}

}  // namespace headscope
