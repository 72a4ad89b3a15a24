#include <gtest/gtest.h>

#include "headscope/measure.h"
#include "tests/support/hostile.h"
#include "tests/support/reference.h"

namespace headscope {
namespace {

using testing::HostileCase;
using testing::make_hostile;

struct Query {
  std::optional<at::Tensor> mask = {};
  bool is_causal = true;
  std::optional<double> scale = {};
};

/// Groups asked of every row: {self}, {0}, all even keys, none.
struct Groups {
  at::Tensor targets, offsets;
  std::vector<std::vector<int64_t>> flat;  // per (b, r, g)
};

constexpr int64_t kGroups = 4;

Groups make_groups(const at::Tensor& rows, int64_t keys) {
  Groups groups;
  std::vector<int64_t> targets, offsets{0};
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const int64_t t = std::max<int64_t>(0, rows.flatten()[i].item<int64_t>());
    std::vector<int64_t> even;
    for (int64_t j = 0; j < keys; j += 2) even.push_back(j);
    for (const auto& group :
         {std::vector<int64_t>{std::min(t, keys - 1)}, std::vector<int64_t>{0}, even, {}}) {
      groups.flat.push_back(group);
      targets.insert(targets.end(), group.begin(), group.end());
      offsets.push_back(static_cast<int64_t>(targets.size()));
    }
  }
  groups.targets = at::tensor(targets, at::kLong);
  groups.offsets = at::tensor(offsets, at::kLong);
  return groups;
}

// Scores carry the rounding of a D-term dot product: relative (D + 2) eps of its magnitude; exp
// turns that into a relative error of the mass. Logits here stay below 40.
void expect_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                 const Query& query) {
  const Groups groups = make_groups(rows, k.size(2));
  const AttentionRows got = attention_mass(q, k, rows, groups.targets, groups.offsets, kGroups,
                                           query.mask, query.is_causal, query.scale);
  const double eps = q.scalar_type() == at::kDouble ? 0x1p-53 : 0x1p-24;
  const double tolerance = eps * static_cast<double>(q.size(3) + 8) * 40;
  const double scale = query.scale.value_or(1 / std::sqrt(static_cast<double>(q.size(3))));
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      for (int64_t r = 0; r < rows.size(1); ++r) {
        const int64_t t = rows[b][r].item<int64_t>();
        if (t < 0) {
          EXPECT_TRUE(std::isnan(got.log_sum_exp[b][h][r].item<double>()));
          continue;
        }
        const auto s = reference::scores(q, k, b, h, t, query.mask, query.is_causal, scale);
        const auto p = reference::softmax(s);
        double top = -std::numeric_limits<double>::infinity(), entropy = 0;
        for (const double value : s) top = std::max(top, value);
        for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
        const auto near = [&](const at::Tensor& value, double want, const char* what) {
          const double error = std::abs(value[b][h][r].item<double>() - want);
          EXPECT_TRUE(error <= tolerance * (1 + std::abs(want)))
              << what << " at " << b << h << r << ": " << error;
        };
        near(got.max_logit, top, "max logit");
        near(got.entropy, entropy, "entropy");
        near(got.first_mass, p[0], "first mass");
        for (int64_t g = 0; g < kGroups; ++g) {
          const auto& group =
              groups.flat[static_cast<size_t>((b * rows.size(1) + r) * kGroups + g)];
          double mass = 0, mean_exp = 0;
          for (const int64_t j : group) {
            mass += p[static_cast<size_t>(j)];
            mean_exp += std::exp(s[static_cast<size_t>(j)]) / static_cast<double>(group.size());
          }
          const double got_mass = got.mass[b][h][r][g].item<double>(),
                       got_score = got.score[b][h][r][g].item<double>();
          EXPECT_TRUE(std::abs(got_mass - mass) <= tolerance)
              << "mass of group " << g << ": " << got_mass << ", " << mass;
          if (mean_exp == 0) {
            EXPECT_EQ(got_score, -std::numeric_limits<double>::infinity());
          } else {
            EXPECT_TRUE(std::abs(got_score - std::log(mean_exp)) <= tolerance * 2)
                << "score of group " << g;
          }
        }
      }
    }
  }
}

at::Tensor some_rows(int64_t batch, int64_t tokens) {
  at::Tensor rows = at::empty({batch, 3}, at::kLong);
  for (int64_t b = 0; b < batch; ++b) {
    rows[b][0] = (7 * b) % tokens;
    rows[b][1] = -1;
    rows[b][2] = tokens - 1;
  }
  return rows;
}

class AttentionMassParity : public ::testing::TestWithParam<HostileCase> {};

TEST_P(AttentionMassParity, MatchesDoubleReference) {
  const HostileCase c = GetParam();
  const at::Tensor q = make_hostile(c, 21), k = make_hostile(c, 22);
  const at::Tensor rows = some_rows(c.batch, c.tokens);
  expect_rows(q, k, rows, {});
  expect_rows(q, k, rows, {.is_causal = false, .scale = 0.7});
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionMassParity, ::testing::ValuesIn(testing::hostile_cases()),
                         [](const auto& info) { return testing::describe(info.param); });

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
    expect_rows(q, k, some_rows(2, 8), {.mask = bias});
    expect_rows(q, k, some_rows(2, 8), {.mask = bias.to(at::kBFloat16), .is_causal = false});
    at::Tensor allowed = bias > -0.5;
    allowed.select(-1, 0).fill_(true);
    expect_rows(q, k, some_rows(2, 8), {.mask = allowed});
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
  const at::Tensor got = recompute_rows(q, k, v, rows, bias);
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
  const AttentionRows got =
      attention_mass(q, k, rows, groups.targets, groups.offsets, kGroups, mask, false);
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
