#include "csrc/monitor/passes/behaviour.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

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

}  // namespace

BehaviourBatches behaviour_batches(const ProbeOptions& options) {
  BehaviourBatches batches;
  batches.micro_batch = options.micro_batch;
  batches.planted = induction_batch({.examples = options.examples,
                                     .context = options.context,
                                     .token_low = options.token_low,
                                     .token_high = options.token_high,
                                     .seed = options.seed + 1,
                                     .window = options.window});
  batches.period = repeat_period(options);
  const at::Tensor source =
      options.held_out.defined()
          ? options.held_out.to(at::kCPU)
          : random_tokens(options.examples, options.context, options.token_low, options.token_high,
                          options.seed + 2);
  batches.repeated = repeated_block(source, options.examples, options.context, batches.period);
  return batches;
}

std::vector<double> behaviour_losses(const ForwardFunction& forward,
                                     const BehaviourBatches& batches, BehaviourMetric metric) {
  const bool planted = metric == BehaviourMetric::kPlantedLoss;
  const at::Tensor& tokens = planted ? batches.planted.tokens : batches.repeated;
  const int64_t context = tokens.size(1), first = batches.period + 1;
  const at::Tensor wanted = int64_tensor(
      batches.planted.target_token, {static_cast<int64_t>(batches.planted.target_token.size())});
  std::vector<double> losses;
  for (int64_t begin = 0; begin < tokens.size(0); begin += batches.micro_batch) {
    const int64_t count = std::min(batches.micro_batch, tokens.size(0) - begin);
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
