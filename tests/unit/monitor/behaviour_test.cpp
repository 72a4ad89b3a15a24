#include "csrc/monitor/passes/behaviour.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <vector>

namespace headscope {
namespace {

using enum BehaviourMetric;
using testing::HasSubstr;

ProbeOptions options_of(const at::Tensor& held_out = {}) {
  return resolved(
      {.vocab_size = 512, .context = 64, .examples = 12, .seed = 7, .held_out = held_out});
}

/// The rows of [M, T] as values.
std::set<std::vector<int64_t>> rows_of(const at::Tensor& tokens_in) {
  const at::Tensor tokens = tokens_in.contiguous();
  std::set<std::vector<int64_t>> rows;
  for (int64_t n = 0; n < tokens.size(0); ++n) {
    const int64_t* from = tokens.const_data_ptr<int64_t>() + n * tokens.size(1);
    rows.emplace(from, from + tokens.size(1));
  }
  return rows;
}

/// Text of `rows` rows in which only `distinct` are different.
at::Tensor text(int64_t rows, int64_t distinct) {
  at::Tensor held_out = at::empty({rows, 32}, at::kLong);
  for (int64_t n = 0; n < rows; ++n) held_out[n].fill_(n % distinct);
  return held_out;
}

TEST(BehaviourBatches, ALaterAttemptIsMadeOnFreshRows) {
  const auto options = options_of();
  std::set<std::vector<int64_t>> planted, repeated;
  for (int64_t attempt = 0; attempt < 4; ++attempt) {
    planted.merge(rows_of(behaviour_batch(options, kPlantedLoss, attempt).tokens));
    repeated.merge(rows_of(behaviour_batch(options, kRepeatedLoss, attempt).tokens));
  }
  EXPECT_EQ(planted.size(), 4u * 12);
  EXPECT_EQ(repeated.size(), 4u * 12);
  EXPECT_EQ(rows_of(behaviour_batch(options, kRepeatedLoss, 3).tokens),
            rows_of(behaviour_batch(options, kRepeatedLoss, 3).tokens));
}

TEST(BehaviourBatches, HeldOutTextIsTakenInTurn) {
  const auto options = options_of(text(36, 36));
  std::set<std::vector<int64_t>> seen;
  for (int64_t attempt = 0; attempt < 3; ++attempt) {
    auto rows = rows_of(behaviour_batch(options, kRepeatedLoss, attempt).tokens);
    EXPECT_EQ(rows.size(), 12u);
    seen.merge(rows);
  }
  EXPECT_EQ(seen.size(), 36u);
  EXPECT_EQ(rows_of(behaviour_batch(options, kRepeatedLoss, 3).tokens),
            rows_of(behaviour_batch(options, kRepeatedLoss, 0).tokens));
}

// Copies of a row say nothing new: an interval over them is far too narrow.
TEST(BehaviourBatches, RowsOfHeldOutTextAreDistinct) {
  const auto batch = behaviour_batch(options_of(text(30, 9)), kRepeatedLoss, 0);
  EXPECT_EQ(batch.tokens.size(0), 9);
  EXPECT_EQ(rows_of(batch.tokens).size(), 9u);
}

TEST(CheckHeldOut, RefusesFewerThanEightDistinctStretches) {
  try {
    check_held_out(options_of(text(30, 7)));
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::AllOf(HasSubstr("7 distinct stretches of 32 tokens"),
                                             HasSubstr("needs 8"), HasSubstr("give more rows")));
  }
  check_held_out(options_of(text(30, 8)));
  check_held_out(options_of());
}

}  // namespace
}  // namespace headscope
