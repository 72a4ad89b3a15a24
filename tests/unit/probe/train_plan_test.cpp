#include "csrc/probe/train_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <set>

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
  const auto patterns = standard_patterns();
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
  const auto patterns = standard_patterns();
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
  const auto patterns = standard_patterns();
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
  const auto patterns = standard_patterns();
  const TrainPlan plan = plan_train(2, 30, {}, patterns, 8, 1);
  for (size_t i = 0; i < plan.target_count.size(); i += patterns.size()) {
    EXPECT_EQ(plan.target_count[i], 0);      // induction
    EXPECT_EQ(plan.target_count[i + 2], 0);  // duplicate-token
    EXPECT_EQ(plan.target_count[i + 4], 1);  // self
  }
}

TEST(TrainPlan, OneTokenIsEnough) {
  const TrainPlan plan = plan_train(3, 1, at::zeros({3, 1}, at::kLong), standard_patterns(), 16, 1);
  EXPECT_EQ(plan.rows.sizes(), at::IntArrayRef({3, 1}));
  EXPECT_EQ(plan.rows.max().item<int64_t>(), 0);
}

}  // namespace
}  // namespace headscope
