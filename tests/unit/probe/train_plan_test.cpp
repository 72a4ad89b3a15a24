#include "csrc/probe/train_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "csrc/probe/seen_keys.h"
#include "tests/support/models/pinned_patterns.h"

namespace headscope {
namespace {

std::vector<int64_t> group(const TrainPlan& plan, int64_t b, int64_t r, int64_t index) {
  const int64_t at = (b * plan.rows.size(1) + r) * plan.groups + index;
  std::vector<int64_t> positions;
  for (int64_t i = plan.offsets[at].item<int64_t>(); i < plan.offsets[at + 1].item<int64_t>();
       ++i) {
    positions.push_back(plan.targets[i].item<int64_t>());
  }
  return positions;
}

TEST(TrainPlan, SamplesDistinctPositionsFromItsSeedAlone) {
  const auto patterns = testing::pinned_patterns();
  const TrainPlan plan = plan_train(5, 40, {}, patterns, 16, 9);
  EXPECT_EQ(plan.rows.sizes(), at::IntArrayRef({5, 16}));
  for (int64_t b = 0; b < 5; ++b) {
    std::set<int64_t> row;
    for (int64_t r = 0; r < 16; ++r) row.insert(plan.rows[b][r].item<int64_t>());
    EXPECT_EQ(row.size(), 16u);
    EXPECT_TRUE(*row.begin() >= 0 && *row.rbegin() < 40);
  }
  EXPECT_TRUE(plan.rows.equal(plan_train(5, 40, {}, patterns, 16, 9).rows));
  EXPECT_FALSE(plan.rows.equal(plan_train(5, 40, {}, patterns, 16, 10).rows));
}

TEST(TrainPlan, CoversEveryPositionEvenly) {
  const auto patterns = testing::pinned_patterns();
  std::vector<int> seen(20, 0);
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    const TrainPlan plan = plan_train(1, 20, {}, patterns, 5, seed);
    for (int64_t r = 0; r < 5; ++r) ++seen[static_cast<size_t>(plan.rows[0][r].item<int64_t>())];
  }
  // 500 expected each, binomial sd 19.4: six sd.
  for (const int count : seen) EXPECT_NEAR(count, 500, 120);
}

TEST(TrainPlan, NaturalInductionTakesEveryEarlierSuccessorButTheNear) {
  // Token 5 at 2, 20 and 36; the query is one of the 5s.
  at::Tensor ids = at::arange(100, 140, at::kLong).view({1, 40});
  for (const int64_t t : {2, 20, 36}) ids[0][t] = 5;
  const auto patterns = testing::pinned_patterns();
  bool found = false;
  for (uint64_t seed = 0; seed < 50 && !found; ++seed) {
    const TrainPlan plan = plan_train(1, 40, ids, patterns, 16, seed);
    for (int64_t r = 0; r < 16; ++r) {
      if (plan.rows[0][r].item<int64_t>() != 36) continue;
      found = true;
      const auto induction = group(plan, 0, r, 0), controls = group(plan, 0, r, 6);
      EXPECT_EQ(std::set<int64_t>(induction.begin(), induction.end()), std::set<int64_t>({3, 21}));
      ASSERT_EQ(controls.size(), 2u);
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_LE(std::abs(controls[i] - induction[i]), 2);  // lag-matched
        EXPECT_GE(36 - controls[i], TrainPlan::kSmallestGap);
      }
    }
  }
  EXPECT_TRUE(found);
}

TEST(TrainPlan, WithoutIdsContentPatternsHaveNoTargets) {
  const auto patterns = testing::pinned_patterns();
  const TrainPlan plan = plan_train(2, 30, {}, patterns, 8, 1);
  for (size_t i = 0; i < plan.target_count.size(); i += patterns.size()) {
    EXPECT_EQ(plan.target_count[i], 0);      // induction
    EXPECT_EQ(plan.target_count[i + 2], 0);  // duplicate-token
    EXPECT_EQ(plan.target_count[i + 4], 1);  // self
  }
}

TEST(TrainPlan, OneTokenIsEnough) {
  const TrainPlan plan =
      plan_train(3, 1, at::zeros({3, 1}, at::kLong), testing::pinned_patterns(), 16, 1);
  EXPECT_EQ(plan.rows.sizes(), at::IntArrayRef({3, 1}));
  EXPECT_EQ(plan.rows.max().item<int64_t>(), 0);
}

/// One document of 12 tokens and one of 28, the second full of repeats of the first.
struct Packed {
  at::Tensor ids = at::arange(100, 140, at::kLong).view({1, 40}).clone();
  at::Tensor documents = at::zeros({1, 40}, at::kLong);
  Packed() {
    documents.narrow(1, 12, 28).fill_(1);
    for (const int64_t t : {4, 20, 36}) ids[0][t] = 5;
    ids[0][11] = 6;  // the last token of the first document comes again
    ids[0][30] = 6;
  }
};

/// Every position is sampled: row r is query r.
TrainPlan plan_all(const at::Tensor& ids, const AttentionCall& call) {
  return plan_train(1, 40, ids, testing::pinned_patterns(), 40, 1, call);
}

TEST(TrainPlan, NothingReachesAcrossADocument) {
  const Packed packed;
  at::Tensor same = packed.documents.unsqueeze(2).eq(packed.documents.unsqueeze(1)).unsqueeze(1);
  const at::Tensor bias = at::zeros({1, 1, 40, 40}).masked_fill(same.logical_not(), -INFINITY);
  for (const AttentionCall& call :
       {AttentionCall{.documents = packed.documents}, AttentionCall{.bias = same},
        AttentionCall{.bias = bias}, AttentionCall{.bias = same.expand({1, 3, 40, 40})}}) {
    const TrainPlan plan = plan_all(packed.ids, call);
    for (int64_t query = 0; query < 40; ++query) {
      for (int64_t g = 0; g < plan.groups; ++g) {
        for (const int64_t t : group(plan, 0, query, g)) {
          EXPECT_EQ(t < 12, query < 12) << "query " << query << " group " << g << " key " << t;
        }
      }
    }
    EXPECT_EQ(group(plan, 0, 36, 0), std::vector<int64_t>({21}));
    EXPECT_EQ(group(plan, 0, 36, 2), std::vector<int64_t>({20}));
    // 12 lies in the document, but the 6 before it does not.
    EXPECT_TRUE(group(plan, 0, 30, 0).empty());
    EXPECT_TRUE(group(plan, 0, 12, 1).empty());  // a document's first token has none before it
    EXPECT_TRUE(group(plan, 0, 30, 3).empty());  // and key 0 is not its first
  }
}

TEST(TrainPlan, KeysBeyondTheWindowAreNeitherTargetNorControl) {
  const TrainPlan plan = plan_all(Packed().ids, {.window = 18});
  for (int64_t query = 0; query < 40; ++query) {
    for (int64_t g = 0; g < plan.groups; ++g) {
      for (const int64_t t : group(plan, 0, query, g)) EXPECT_GT(t, query - 18);
    }
  }
  EXPECT_EQ(group(plan, 0, 36, 0), std::vector<int64_t>({21}));
  EXPECT_TRUE(group(plan, 0, 20, 0).size() == 1 && group(plan, 0, 20, 2).size() == 1);
}

TEST(TrainPlan, PaddingIsNoQueryTargetOrControl) {
  at::Tensor keep = at::ones({1, 40}, at::kBool);
  keep.narrow(1, 0, 10).fill_(false);
  const TrainPlan plan = plan_all(Packed().ids, {.keep = keep});
  for (int64_t r = 0; r < 40; ++r) {
    EXPECT_EQ(plan.rows[0][r].item<int64_t>(), r < 30 ? r + 10 : -1);
    for (int64_t g = 0; g < plan.groups; ++g) {
      for (const int64_t t : group(plan, 0, r, g)) EXPECT_GE(t, 10);
    }
  }
}

TEST(SeenKeys, SayNothingWhereNothingIsHidden) {
  const at::Tensor rows = at::tensor({0, 3, -1}, at::kLong).view({1, 3});
  const at::Tensor causal = at::ones({5, 5}, at::kBool).tril();
  EXPECT_FALSE(seen_keys(rows, 5, {}).defined());
  EXPECT_FALSE(seen_keys(rows, 5, {.window = 5}).defined());
  EXPECT_FALSE(seen_keys(rows, 5, {.bias = causal, .is_causal = false}).defined());
  EXPECT_FALSE(seen_keys(rows, 5, {.bias = at::randn({2, 5, 5})}).defined());
  EXPECT_FALSE(seen_keys(rows, 5, {.documents = at::full({1, 5}, 7, at::kLong)}).defined());
}

TEST(SeenKeys, AKeyThatAnyHeadSeesIsSeen) {
  const at::Tensor rows = at::tensor({3}, at::kLong).view({1, 1});
  at::Tensor mask = at::zeros({1, 2, 4, 4}, at::kBool);
  mask[0][0][3][1] = true;
  mask[0][1][3][2] = true;
  const at::Tensor either = mask[0].any(0)[3];
  const auto seen = [&](const at::Tensor& bias) {
    return seen_keys(rows, 4, {.bias = bias}).flatten().equal(either);
  };
  EXPECT_TRUE(seen(mask));
  EXPECT_TRUE(seen(at::zeros({1, 2, 4, 4}).masked_fill(mask.logical_not(), -INFINITY)));
  EXPECT_TRUE(seen(either.view({1, 1, 1, 4})));  // of keys alone
  EXPECT_TRUE(seen(either));
}

}  // namespace
}  // namespace headscope
