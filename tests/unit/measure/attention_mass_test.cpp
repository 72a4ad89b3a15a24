#include <gtest/gtest.h>

#include <tuple>

#include "headscope/measure.h"
#include "tests/support/numeric/attention_rows.h"
#include "tests/support/numeric/hostile.h"
#include "tests/support/numeric/simd_targets.h"

namespace headscope {
namespace {

using testing::HostileCase;
using testing::make_hostile;

using testing::expect_rows;
using testing::Groups;
using testing::kGroups;
using testing::make_groups;
using testing::some_rows;

class AttentionMassParity : public ::testing::TestWithParam<std::tuple<HostileCase, int64_t>> {};

TEST_P(AttentionMassParity, MatchesDoubleReference) {
  const HostileCase c = std::get<0>(GetParam());
  const testing::WithSimdTarget target(std::get<1>(GetParam()));
  const at::Tensor q = make_hostile(c, 21), k = make_hostile(c, 22);
  // The terms of a score, E|q_i k_i| = 2 / pi each, add up to no more than this.
  const double magnitude = std::max(40.0, 0.7 * static_cast<double>(c.width));
  for (const int64_t sampled : {3, 11}) {
    const at::Tensor rows = some_rows(c.batch, c.tokens, sampled);
    expect_rows(q, k, rows, {}, magnitude);
    expect_rows(q, k, rows, {.is_causal = false, .scale = 0.7}, magnitude);
  }
}

const auto mass_name = [](const auto& info) {
  return testing::describe(std::get<0>(info.param)) + "_" +
         testing::target_name(std::get<1>(info.param));
};

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionMassParity,
                         ::testing::Combine(::testing::ValuesIn(testing::hostile_cases()),
                                            ::testing::ValuesIn(testing::simd_targets())),
                         mass_name);
INSTANTIATE_TEST_SUITE_P(Widths, AttentionMassParity,
                         ::testing::Combine(::testing::ValuesIn(testing::wide_cases()),
                                            ::testing::ValuesIn(testing::simd_targets())),
                         mass_name);

// Keys pass by in chunks of 64 or 512; scores that keep rising rescale the sums at every one.
class AttentionMassChunks : public ::testing::TestWithParam<int64_t> {};

TEST_P(AttentionMassChunks, AddUpOverLongRisingRows) {
  const testing::WithSimdTarget target(GetParam());
  const int64_t tokens = 1100;
  const at::Tensor q = at::ones({1, 2, tokens, 3}) / 3;
  const at::Tensor rising = at::arange(tokens, at::kFloat) / 40;
  const at::Tensor noise = at::randn({1, 1, tokens, 3}, at::detail::createCPUGenerator(41));
  for (const double sign : {1.0, -1.0}) {
    const at::Tensor k = (rising * sign).view({1, 1, tokens, 1}) + noise;
    for (const int64_t sampled : {3, 11}) {
      expect_rows(q, k, some_rows(1, tokens, sampled), {.scale = 1.0});
      expect_rows(q, k, some_rows(1, tokens, sampled), {.scale = 1.0, .window = 700});
    }
  }
}

TEST_P(AttentionMassChunks, FindNanAndInfinityWhereverTheyAre) {
  const testing::WithSimdTarget target(GetParam());
  const int64_t tokens = 1100;
  const at::Tensor q = at::ones({1, 1, tokens, 2});
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const int64_t where : {0, 63, 64, 511, 512, 1099}) {
      at::Tensor k = at::randn({1, 1, tokens, 2}, at::detail::createCPUGenerator(42));
      k[0][0][where].fill_(bad);
      for (const int64_t sampled : {1, 9}) {
        const at::Tensor rows =
            at::full({1, sampled}, tokens - 1, at::kLong) - at::arange(sampled, at::kLong);
        const Groups groups = make_groups(rows, tokens);
        const AttentionRows got =
            attention_mass(q, k, rows, groups.targets, groups.offsets, kGroups);
        for (int64_t r = 0; r < sampled; ++r) {
          const bool sees_it = where <= tokens - 1 - r;
          EXPECT_EQ(std::isnan(got.log_sum_exp[0][0][r].item<double>()), sees_it)
              << bad << " at " << where << ", row " << r;
          EXPECT_EQ(got.mass[0][0][r].isnan().all().item<bool>(), sees_it);
        }
      }
    }
  }
}

TEST_P(AttentionMassChunks, ScoresOfSmallIntegersAreExact) {
  const testing::WithSimdTarget target(GetParam());
  for (const int64_t width : {9, 64}) {
    const auto integers = [&](uint64_t seed) {
      return at::randint(-8, 9, {1, 2, 70, width}, at::detail::createCPUGenerator(seed),
                         at::kDouble);
    };
    const at::Tensor q = integers(43), k = integers(44);
    for (const int64_t sampled : {3, 11}) {
      const at::Tensor rows = some_rows(1, 70, sampled);
      const Groups groups = make_groups(rows, 70);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        const AttentionRows got = attention_mass(q.to(type), k.to(type), rows, groups.targets,
                                                 groups.offsets, kGroups, {.scale = 1.0});
        for (int64_t h = 0; h < 2; ++h) {
          const auto s = reference::scores(q, k, 0, h, 69, {.scale = 1.0});
          EXPECT_EQ(got.max_logit[0][h][2].item<double>(), *std::max_element(s.begin(), s.end()));
          EXPECT_EQ(got.score[0][h][2][0].item<double>(), s[69]);
          EXPECT_EQ(got.score[0][h][2][1].item<double>(), s[0]);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AttentionMassChunks, ::testing::ValuesIn(testing::simd_targets()),
                         [](const auto& info) { return testing::target_name(info.param); });

TEST(AttentionMass, ReadsTheKeyHeadOfEachQueryGroup) {
  for (const int64_t key_heads : {1, 2, 7}) {
    const at::Tensor q = at::randn({2, 14, 9, 4}, at::detail::createCPUGenerator(23));
    const at::Tensor k = at::randn({2, key_heads, 9, 4}, at::detail::createCPUGenerator(24));
    expect_rows(q, k, some_rows(2, 9), {});
  }
}

TEST(AttentionMass, TakesEveryBroadcastOfAMask) {
  const at::Tensor q = at::randn({2, 3, 8, 4}, at::detail::createCPUGenerator(25)),
                   k = at::randn({2, 3, 8, 4}, at::detail::createCPUGenerator(26));
  for (const auto& sizes : std::vector<std::vector<int64_t>>{
           {8, 8}, {3, 8, 8}, {1, 3, 8, 8}, {2, 1, 1, 8}, {2, 3, 8, 8}}) {
    at::Tensor bias = at::randn(sizes, at::detail::createCPUGenerator(27));
    expect_rows(q, k, some_rows(2, 8), {.bias = bias});
    expect_rows(q, k, some_rows(2, 8), {.bias = bias.to(at::kBFloat16), .is_causal = false});
    at::Tensor allowed = bias > -0.5;
    allowed.select(-1, 0).fill_(true);
    expect_rows(q, k, some_rows(2, 8), {.bias = allowed});
  }
}

TEST(AttentionMass, AgreesWithTheFusedKernel) {
  const at::Tensor q = at::randn({2, 4, 50, 16}, at::detail::createCPUGenerator(28)),
                   k = at::randn({2, 2, 50, 16}, at::detail::createCPUGenerator(29)),
                   v = at::randn({2, 2, 50, 12}, at::detail::createCPUGenerator(30));
  const at::Tensor bias = at::randn({1, 4, 50, 50}, at::detail::createCPUGenerator(31));
  const at::Tensor causal = at::ones({50, 50}, at::kBool).tril();
  const at::Tensor mask =
      bias.masked_fill(causal.logical_not(), -std::numeric_limits<float>::infinity());
  const at::Tensor z = at::scaled_dot_product_attention(q, k.repeat_interleave(2, 1),
                                                        v.repeat_interleave(2, 1), mask);
  const at::Tensor rows = at::tensor({0, 20, 49}, at::kLong).expand({2, 3}).contiguous();
  const at::Tensor got = recompute_rows(q, k, v, rows, {.bias = bias});
  testing::expect_within(got, z.index_select(2, at::tensor({0, 20, 49}, at::kLong)),
                         testing::scalar(1e-5));
}

TEST(AttentionMass, FullyMaskedRowsAreMarkedNotCounted) {
  const at::Tensor q = at::randn({1, 1, 4, 3}, at::detail::createCPUGenerator(32)),
                   k = at::randn({1, 1, 4, 3}, at::detail::createCPUGenerator(33));
  at::Tensor mask = at::ones({4, 4}, at::kBool);
  mask[2].fill_(false);
  const at::Tensor rows = at::tensor({2, 3}, at::kLong).view({1, 2});
  const Groups groups = make_groups(rows, 4);
  const AttentionRows got = attention_mass(q, k, rows, groups.targets, groups.offsets, kGroups,
                                           {.bias = mask, .is_causal = false});
  EXPECT_EQ(got.log_sum_exp[0][0][0].item<double>(), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(got.mass[0][0][0].isnan().all().item<bool>());
  EXPECT_TRUE(got.mass[0][0][1].isfinite().all().item<bool>());
}

TEST(AttentionMass, HugeLogitsStayFinite) {
  const at::Tensor q = at::full({1, 1, 3, 2}, 300.0),
                   k = at::tensor({1.0, 1.0, 300.0, 300.0, 2.0, 2.0}).view({1, 1, 3, 2});
  const at::Tensor rows = at::tensor({2}, at::kLong).view({1, 1});
  const Groups groups = make_groups(rows, 3);
  const AttentionRows got = attention_mass(q.to(at::kFloat), k.to(at::kFloat), rows, groups.targets,
                                           groups.offsets, kGroups);
  EXPECT_GT(got.max_logit.item<double>(), 1e5);
  EXPECT_EQ(got.entropy.item<double>(), 0.0);
  EXPECT_EQ(got.mass[0][0][0][0].item<double>(), 0.0);
}

TEST(AttentionMass, OneHeadsNanStaysItsOwn) {
  at::Tensor q = at::randn({1, 2, 5, 3}, at::detail::createCPUGenerator(34));
  const at::Tensor k = at::randn({1, 2, 5, 3}, at::detail::createCPUGenerator(35));
  q[0][1][4][0] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor rows = at::tensor({4}, at::kLong).view({1, 1});
  const Groups groups = make_groups(rows, 5);
  const AttentionRows got = attention_mass(q, k, rows, groups.targets, groups.offsets, kGroups);
  EXPECT_TRUE(got.mass[0][0].isfinite().all().item<bool>());
  EXPECT_TRUE(got.log_sum_exp[0][1].isnan().all().item<bool>());
}

TEST(RecomputeRows, IgnoresTheValuesOfMaskedKeys) {
  const at::Tensor q = at::randn({1, 1, 4, 3}, at::detail::createCPUGenerator(36)),
                   k = at::randn({1, 1, 4, 3}, at::detail::createCPUGenerator(37));
  at::Tensor v = at::randn({1, 1, 4, 3}, at::detail::createCPUGenerator(38));
  v[0][0][3].fill_(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(recompute_rows(q, k, v, at::tensor({2}, at::kLong).view({1, 1}))
                  .isfinite()
                  .all()
                  .item<bool>());
}

}  // namespace
}  // namespace headscope
