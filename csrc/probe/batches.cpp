#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "csrc/probe/repeat_plan.h"
#include "headscope/probe_batch.h"
#include "headscope/random_state.h"

namespace headscope {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::invalid_argument("headscope probe: " + what);
}

void check_window(int64_t window) {
  if (window == 0 || window >= 16) return;
  refuse("window must be 0 (none) or at least 16 to tell six patterns apart, got " +
         std::to_string(window) +
         "; leave it at 0 when no layer with a larger window is to be measured");
}

}  // namespace

InductionBatch induction_batch(const InductionBatchOptions& options) {
  const int64_t context = options.context, low = options.token_low, high = options.token_high;
  if (options.examples < 1)
    refuse("examples must be at least 1, got " + std::to_string(options.examples));
  if (context < 16)
    refuse("context must be at least 16 to tell six patterns apart, got " +
           std::to_string(context));
  if (low < 0 || high - low < 4) {
    refuse("tokens need a range of at least 4 values from 0 up, got [" + std::to_string(low) +
           ", " + std::to_string(high) + ")");
  }
  check_window(options.window);
  const int64_t seen = options.window > 0 ? std::min(options.window, context) : context;
  const int64_t hidden = context - seen;
  const int64_t pair_low = options.pair_low >= 0 ? options.pair_low : hidden + 20 * seen / 256;
  const int64_t lowest = std::max<int64_t>(1, hidden), pair_high = hidden + seen / 2;
  if (pair_low < lowest || pair_low >= pair_high) {
    refuse("pair_low must lie in [" + std::to_string(lowest) + ", " + std::to_string(pair_high) +
           ") for this context and window, got " + std::to_string(pair_low));
  }

  InductionBatch batch;
  batch.tokens = at::empty({options.examples, context}, at::kLong);
  batch.target_token.reserve(static_cast<size_t>(options.examples));
  batch.pair_position.reserve(static_cast<size_t>(options.examples));
  RandomState random(options.seed);
  for (int64_t n = 0; n < options.examples; ++n) {
    int64_t* row = batch.tokens.data_ptr<int64_t>() + n * context;
    for (int64_t t = 0; t < context; ++t) row[t] = random.integer(low, high);
    const auto pair = random.choice(high - low, 2);
    const int64_t a = low + pair[0], b = low + pair[1];
    const int64_t position = random.integer(pair_low, pair_high);
    row[position] = a;
    row[position + 1] = b;
    // One fresh draw each, not checked again: the order and the gap are the reference's.
    for (int64_t t = 0; t < context; ++t) {
      if (t != position && row[t] == a) row[t] = random.integer(low, high);
    }
    for (int64_t t = 0; t < context; ++t) {
      if (t != position + 1 && row[t] == b) row[t] = random.integer(low, high);
    }
    row[context - 1] = a;
    batch.target_token.push_back(b);
    batch.pair_position.push_back(position);
  }
  return batch;
}

at::Tensor random_tokens(int64_t examples, int64_t context, int64_t low, int64_t high,
                         uint32_t seed) {
  at::Tensor tokens = at::empty({examples, context}, at::kLong);
  RandomState random(seed);
  int64_t* data = tokens.data_ptr<int64_t>();
  for (int64_t i = 0; i < tokens.numel(); ++i) data[i] = random.integer(low, high);
  return tokens;
}

at::Tensor repeated_block(const at::Tensor& source, int64_t examples, int64_t context,
                          int64_t period) {
  if (period == 0) period = context / 2;
  if (period < 2 || period > context / 2) {
    refuse("a repeated block needs a period from 2 to context / 2 = " +
           std::to_string(context / 2) + ", got " + std::to_string(period));
  }
  if (source.dim() != 2 || source.scalar_type() != at::kLong || source.size(0) < 1 ||
      source.size(1) < period) {
    refuse("the source of a repeated block must be int64 [M >= 1, >= " + std::to_string(period) +
           "], got " + c10::str(source.sizes(), " of ", source.scalar_type()));
  }
  at::Tensor rows = source.narrow(1, 0, period);
  const int64_t copies = (context + period - 1) / period;
  const at::Tensor index = at::arange(examples, at::kLong).remainder(source.size(0));
  return rows.index_select(0, index.to(rows.device()))
      .repeat({1, copies})
      .narrow(1, 0, context)
      .contiguous();
}

ProbeOptions resolved(ProbeOptions options) {
  if (options.vocab_size < 8) {
    refuse("vocab_size must be given and at least 8, got " + std::to_string(options.vocab_size));
  }
  if (options.context < 16) {
    refuse("context must be given and at least 16, got " + std::to_string(options.context) +
           "; a model with a shorter context can only be read on its training batch");
  }
  if (options.examples < 8)
    refuse("examples must be at least 8, got " + std::to_string(options.examples));
  if (options.micro_batch < 1)
    refuse("micro_batch must be at least 1, got " + std::to_string(options.micro_batch));
  if (options.token_high > options.vocab_size) {
    refuse("token_high " + std::to_string(options.token_high) + " is above the vocabulary of " +
           std::to_string(options.vocab_size) + " tokens; leave it at -1 or lower it");
  }
  if (options.token_low < 0)
    options.token_low = options.vocab_size > 1000 ? 100 : options.vocab_size / 10;
  if (options.token_high < 0) options.token_high = std::min<int64_t>(10000, options.vocab_size);
  if (options.token_high - options.token_low < 8) {
    refuse("the token range [" + std::to_string(options.token_low) + ", " +
           std::to_string(options.token_high) + ") must hold at least 8 values");
  }
  if (options.position_queries < 0 || options.position_queries > 16) {
    refuse("position_queries must be 0 to 16, got " + std::to_string(options.position_queries));
  }
  // The reference's fixed control positions belong to its one query.
  if (options.controls == ControlPositions::kReference50) options.position_queries = 0;
  if (options.patterns.empty())
    refuse("at least one pattern is needed; leave patterns at standard_patterns()");
  validate_patterns(options.patterns);
  check_window(options.window);
  if (options.held_out.defined()) {
    repeated_block(options.held_out, 1, options.context,
                   repeat_period(options));  // refuses shapes that cannot be repeated
    if (options.held_out.min().item<int64_t>() < 0 ||
        options.held_out.max().item<int64_t>() >= options.vocab_size) {
      refuse("held_out holds tokens outside the vocabulary of " +
             std::to_string(options.vocab_size));
    }
  }
  return options;
}

}  // namespace headscope
