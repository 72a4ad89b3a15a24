#include "csrc/probe/repeat_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace headscope {
namespace {

TEST(RepeatPlan, AsksForTheTokenAfterTheEarlierOccurrence) {
  for (const int64_t context : {16, 17, 64}) {
    const RepeatPlan plan =
        plan_repeat(resolved({.vocab_size = 512, .context = context, .examples = 40}));
    EXPECT_EQ(plan.tokens.sizes(), at::IntArrayRef({16, context}));
    const int64_t sampled = plan.rows.size(1);
    for (int64_t i = 0; i < plan.rows.numel(); ++i) {
      const int64_t n = i / sampled, query = plan.rows.flatten()[i].item<int64_t>();
      const int64_t target = plan.targets[i].item<int64_t>();
      ASSERT_TRUE(target > 0 && query + 1 < context);
      EXPECT_TRUE(plan.tokens[n][target - 1].equal(plan.tokens[n][query]));
      EXPECT_TRUE(plan.tokens[n][target].equal(plan.tokens[n][query + 1]));
    }
  }
}

TEST(RepeatPlan, LiesWithinTheWindow) {
  for (const int64_t window : {16, 20, 90}) {
    const RepeatPlan plan =
        plan_repeat(resolved({.vocab_size = 512, .context = 64, .examples = 8, .window = window}));
    EXPECT_EQ(plan.period, std::min<int64_t>(32, window - 1));
    const int64_t sampled = plan.rows.size(1);
    for (int64_t i = 0; i < plan.rows.numel(); ++i) {
      const int64_t n = i / sampled, query = plan.rows.flatten()[i].item<int64_t>();
      const int64_t target = plan.targets[i].item<int64_t>();
      EXPECT_GT(target - 1, query - window);
      EXPECT_TRUE(plan.tokens[n][target - 1].equal(plan.tokens[n][query]));
    }
  }
}

TEST(RepeatGap, IsTheLossThatTheSecondCopySaves) {
  const RepeatPlan plan = plan_repeat(resolved({.vocab_size = 64, .context = 20, .examples = 8}));
  at::Tensor logits = at::zeros({8, 20, 64});
  EXPECT_NEAR(repeat_gap(logits, plan), 0.0, 1e-12);
  // Knowing the second copy's tokens by log 64 against the rest: the loss falls from ln 64 to
  // ln(127 / 64).
  const at::Tensor next = plan.tokens.narrow(1, 11, 9).unsqueeze(2);
  logits.narrow(1, 10, 9).scatter_(2, next, std::log(64.0));
  EXPECT_NEAR(repeat_gap(logits, plan), std::log(64.0) - std::log(127.0 / 64), 1e-6);
  EXPECT_TRUE(std::isnan(repeat_gap(at::Tensor(), plan)));
}

}  // namespace
}  // namespace headscope
