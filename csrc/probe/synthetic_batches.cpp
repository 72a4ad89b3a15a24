#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "csrc/probe/row_draws.h"
#include "headscope/probe_batch.h"
#include "headscope/screen_batches.h"

namespace headscope {
namespace {

at::Tensor distinct_token_rows(const RowOptions& rows) {
  return at::empty({rows.examples, rows.context}, at::kLong);
}

int64_t* row_of(at::Tensor& tokens, int64_t n) {
  return tokens.data_ptr<int64_t>() + n * tokens.size(1);
}

/// One row in which repeats lie close by.
class LocalRepeatRow {
 public:
  LocalRepeatRow(const LocalRepeatOptions& options, RandomState& random, int64_t* row)
      : options_(options), random_(random), fresh_(options.rows, random), row_(row) {}

  void draw() {
    for (int64_t t = 0; t < options_.rows.context; ++t) {
      row_[t] = repeated(t);
      if (row_[t] < 0) row_[t] = fresh_.next();
      first_.emplace(row_[t], t);
      if (t > 0) bigrams_.emplace(row_[t - 1], row_[t]);
    }
  }

 private:
  /// The token that position t repeats, or -1.
  int64_t repeated(int64_t t) {
    const bool asked = random_.integer(0, 100) < options_.repeat_percent;
    if (!asked || t == 0) return -1;
    const int64_t lag = random_.integer(1, std::min(options_.longest_lag, t) + 1);
    const int64_t token = row_[t - lag];
    const bool near = first_.at(token) >= t - options_.longest_lag;
    return near && !bigrams_.contains({row_[t - 1], token}) ? token : -1;
  }

  const LocalRepeatOptions& options_;
  RandomState& random_;
  FreshTokens fresh_;
  int64_t* row_;
  std::map<int64_t, int64_t> first_;  // position of a token's first occurrence
  std::set<std::pair<int64_t, int64_t>> bigrams_;
};

}  // namespace

DuplicateTokenBatch duplicate_token_batch(const DuplicateTokenOptions& options) {
  const std::string batch = "duplicate_token_batch";
  const RowOptions& rows = options.rows;
  check_rows(batch, rows, rows.context);
  const int64_t query_low = options.query_low >= 0 ? options.query_low : rows.context / 2;
  const int64_t lag_high = options.lag_high >= 0 ? options.lag_high : rows.context;
  if (options.lag_low < 1 || options.lag_low >= lag_high)
    refuse_batch(batch, "the lag needs a range from 1 up, got [" + std::to_string(options.lag_low) +
                            ", " + std::to_string(lag_high) + ")");
  if (query_low <= options.lag_low || query_low >= rows.context)
    refuse_batch(batch, "query_low must lie in (lag_low, context) = (" +
                            std::to_string(options.lag_low) + ", " + std::to_string(rows.context) +
                            "), got " + std::to_string(query_low));
  DuplicateTokenBatch drawn;
  drawn.tokens = distinct_token_rows(rows);
  RandomState random(rows.seed);
  for (int64_t n = 0; n < rows.examples; ++n) {
    int64_t* row = row_of(drawn.tokens, n);
    FreshTokens fresh(rows, random);
    for (int64_t t = 0; t < rows.context; ++t) row[t] = fresh.next();
    const int64_t query = random.integer(query_low, rows.context);
    const int64_t lag = random.integer(options.lag_low, std::min(lag_high, query));
    row[query] = row[query - lag];
    drawn.query.push_back(query);
    drawn.earlier.push_back(query - lag);
  }
  return drawn;
}

HardNegativeBatch hard_negative_batch(const HardNegativeOptions& options) {
  const std::string batch = "hard_negative_batch";
  const RowOptions& rows = options.rows;
  check_rows(batch, rows, rows.context);
  const int64_t half = rows.context / 2;
  const int64_t first_places = (half - 1) / 2, second_places = (rows.context - half) / 2;
  if (options.pairs < 1 || options.pairs > first_places)
    refuse_batch(batch,
                 "pairs must lie in 1 .. (context / 2 - 1) / 2 = " + std::to_string(first_places) +
                     ", got " + std::to_string(options.pairs));
  HardNegativeBatch drawn;
  drawn.tokens = distinct_token_rows(rows);
  RandomState random(rows.seed);
  for (int64_t n = 0; n < rows.examples; ++n) {
    int64_t* row = row_of(drawn.tokens, n);
    FreshTokens fresh(rows, random);
    for (int64_t t = 0; t < rows.context; ++t) row[t] = fresh.next();
    std::vector<int64_t> first = random.choice(first_places, options.pairs);
    std::vector<int64_t> second = random.choice(second_places, options.pairs);
    for (size_t i = 0; i < first.size(); ++i) {
      first[i] = 1 + 2 * first[i];
      second[i] = half + 2 * second[i];
      row[second[i]] = row[first[i]];
    }
    drawn.first.push_back(std::move(first));
    drawn.second.push_back(std::move(second));
  }
  return drawn;
}

at::Tensor local_repeat_batch(const LocalRepeatOptions& options) {
  const std::string batch = "local_repeat_batch";
  const RowOptions& rows = options.rows;
  check_rows(batch, rows, rows.context);
  if (options.longest_lag < 1 || options.longest_lag >= rows.context)
    refuse_batch(batch,
                 "longest_lag must lie in 1 .. context - 1 = " + std::to_string(rows.context - 1) +
                     ", got " + std::to_string(options.longest_lag));
  if (options.repeat_percent < 0 || options.repeat_percent > 100)
    refuse_batch(batch, "repeat_percent must lie in 0 .. 100, got " +
                            std::to_string(options.repeat_percent));
  at::Tensor tokens = distinct_token_rows(rows);
  RandomState random(rows.seed);
  for (int64_t n = 0; n < rows.examples; ++n)
    LocalRepeatRow(options, random, row_of(tokens, n)).draw();
  return tokens;
}

at::Tensor random_null_batch(int64_t examples, int64_t context, int64_t vocab_size, uint32_t seed) {
  const std::string batch = "random_null_batch";
  check_rows(batch,
             {.examples = examples,
              .context = context,
              .token_low = 0,
              .token_high = vocab_size,
              .seed = seed},
             2);
  return random_tokens(examples, context, 0, vocab_size, seed);
}

}  // namespace headscope
