#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <utility>

#include "headscope/screen_batches.h"
#include "tests/support/errors.h"

namespace headscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

constexpr RowOptions kRows = {
    .examples = 60, .context = 64, .token_low = 3, .token_high = 90, .seed = 7};

std::vector<int64_t> row(const at::Tensor& tokens, int64_t n) {
  const int64_t* data = tokens.const_data_ptr<int64_t>() + n * tokens.size(1);
  return {data, data + tokens.size(1)};
}

std::map<int64_t, std::vector<int64_t>> occurrences(const std::vector<int64_t>& tokens) {
  std::map<int64_t, std::vector<int64_t>> found;
  for (size_t t = 0; t < tokens.size(); ++t) found[tokens[t]].push_back(static_cast<int64_t>(t));
  return found;
}

bool a_bigram_repeats(const std::vector<int64_t>& tokens) {
  std::set<std::pair<int64_t, int64_t>> seen;
  for (size_t t = 1; t < tokens.size(); ++t)
    if (!seen.emplace(tokens[t - 1], tokens[t]).second) return true;
  return false;
}

TEST(DuplicateTokenBatch, RepeatsTheQuerysTokenAndNoOther) {
  const auto batch = duplicate_token_batch({.rows = kRows, .lag_low = 4, .lag_high = 30});
  std::set<int64_t> queries, lags;
  for (int64_t n = 0; n < 60; ++n) {
    const auto n_ = static_cast<size_t>(n);
    const auto found = occurrences(row(batch.tokens, n));
    EXPECT_EQ(found.size(), 63u);
    EXPECT_THAT(found.at(row(batch.tokens, n)[static_cast<size_t>(batch.query[n_])]),
                ElementsAre(batch.earlier[n_], batch.query[n_]));
    EXPECT_GE(batch.query[n_], 32);
    const int64_t lag = batch.query[n_] - batch.earlier[n_];
    EXPECT_TRUE(lag >= 4 && lag < 30) << lag;
    queries.insert(batch.query[n_]);
    lags.insert(lag);
  }
  EXPECT_GT(queries.size(), 20u);
  EXPECT_GT(lags.size(), 15u);
}

TEST(HardNegativeBatch, BringsTokensBackAndNoBigram) {
  const auto batch = hard_negative_batch({.rows = kRows, .pairs = 15});
  for (int64_t n = 0; n < 60; ++n) {
    const auto tokens = row(batch.tokens, n);
    const auto found = occurrences(tokens);
    EXPECT_EQ(found.size(), 64u - 15u);
    EXPECT_FALSE(a_bigram_repeats(tokens));
    const auto& first = batch.first[static_cast<size_t>(n)];
    const auto& second = batch.second[static_cast<size_t>(n)];
    for (size_t i = 0; i < 15; ++i) {
      EXPECT_THAT(found.at(tokens[static_cast<size_t>(first[i])]),
                  ElementsAre(first[i], second[i]));
      EXPECT_TRUE(first[i] >= 1 && first[i] < 32 && second[i] >= 32 && second[i] < 63);
      EXPECT_EQ(found.at(tokens[static_cast<size_t>(second[i] + 1)]).size(), 1u);  // C
    }
  }
}

TEST(LocalRepeatBatch, RepeatsWithinTheLagOnly) {
  const at::Tensor tokens =
      local_repeat_batch({.rows = kRows, .longest_lag = 6, .repeat_percent = 40});
  int64_t repeats = 0;
  for (int64_t n = 0; n < 60; ++n) {
    EXPECT_FALSE(a_bigram_repeats(row(tokens, n)));
    for (const auto& [token, at] : occurrences(row(tokens, n))) {
      EXPECT_LE(at.back() - at.front(), 6);
      repeats += static_cast<int64_t>(at.size()) - 1;
    }
  }
  EXPECT_GT(repeats, 60 * 64 / 5);
}

TEST(LocalRepeatBatch, AsksForNoRepeatAtZeroPercent) {
  const at::Tensor tokens = local_repeat_batch({.rows = kRows, .repeat_percent = 0});
  EXPECT_EQ(occurrences(row(tokens, 0)).size(), 64u);
}

// numpy 2.4: RandomState(2026).randint(0, 50304, (2000, 256), dtype=int64).
TEST(RandomNullBatch, EqualsTheReferencesRowsBitForBit) {
  const at::Tensor tokens = random_null_batch(2000, 256, 50304);
  EXPECT_THAT(row(tokens.narrow(1, 0, 4).contiguous(), 0), ElementsAre(2305, 32134, 8986, 29624));
  EXPECT_THAT(row(tokens.narrow(1, 253, 3).contiguous(), 1999), ElementsAre(10645, 21743, 24163));
  EXPECT_EQ(tokens.sum().item<int64_t>(), 12879940419);
}

TEST(SyntheticBatches, AreFunctionsOfTheirSeed) {
  RowOptions other = kRows;
  other.seed = 8;
  EXPECT_TRUE(duplicate_token_batch({.rows = kRows})
                  .tokens.equal(duplicate_token_batch({.rows = kRows}).tokens));
  EXPECT_FALSE(hard_negative_batch({.rows = kRows})
                   .tokens.equal(hard_negative_batch({.rows = other}).tokens));
  EXPECT_FALSE(local_repeat_batch({.rows = kRows}).equal(local_repeat_batch({.rows = other})));
}

TEST(SyntheticBatches, RefuseWithValueAndFix) {
  const auto refused = [](auto&& call, const char* message) {
    EXPECT_THAT(error_of<std::invalid_argument>(call), HasSubstr(message));
  };
  RowOptions few = kRows;
  few.token_high = 60;
  refused([&] { duplicate_token_batch({.rows = few}); },
          "a range of at least 64 values from 0 up, got [3, 60); raise token_high");
  refused([] { duplicate_token_batch({.rows = kRows, .lag_low = 9, .lag_high = 9}); }, "[9, 9)");
  refused([] { duplicate_token_batch({.rows = kRows, .query_low = 8}); },
          "query_low must lie in (lag_low, context) = (8, 64), got 8");
  refused([] { hard_negative_batch({.rows = kRows, .pairs = 16}); },
          "pairs must lie in 1 .. (context / 2 - 1) / 2 = 15, got 16");
  refused([] { local_repeat_batch({.rows = kRows, .longest_lag = 64}); },
          "longest_lag must lie in 1 .. context - 1 = 63, got 64");
  refused([] { local_repeat_batch({.rows = kRows, .repeat_percent = 101}); }, "got 101");
  refused([] { random_null_batch(0, 64, 100); }, "examples must be at least 1, got 0");
  refused([] { random_null_batch(2, 15, 100); }, "at least 16 to tell six patterns apart, got 15");
}

}  // namespace
}  // namespace headscope
