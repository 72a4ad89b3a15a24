#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "headscope/measure.h"
#include "tests/support/numeric/reference.h"

namespace headscope::testing {

/// Groups asked of every row: {self}, {0}, all even keys, none.
struct Groups {
  at::Tensor targets, offsets;
  std::vector<std::vector<int64_t>> flat;  // per (b, r, g)
};

inline constexpr int64_t kGroups = 4;

inline Groups make_groups(const at::Tensor& rows, int64_t keys) {
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
// turns that into a relative error of the mass. No logit exceeds `largest_logit`.
inline void expect_rows(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                        const AttentionCall& call, double largest_logit = 40) {
  const Groups groups = make_groups(rows, k.size(2));
  const AttentionRows got =
      attention_mass(q, k, rows, groups.targets, groups.offsets, kGroups, call);
  const double eps = q.scalar_type() == at::kDouble ? 0x1p-53 : 0x1p-24;
  const double tolerance = eps * static_cast<double>(q.size(3) + 8) * largest_logit;
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      for (int64_t r = 0; r < rows.size(1); ++r) {
        const int64_t t = rows[b][r].item<int64_t>();
        if (t < 0) {
          EXPECT_TRUE(std::isnan(got.log_sum_exp[b][h][r].item<double>()));
          continue;
        }
        const auto s = reference::scores(q, k, b, h, t, call);
        const auto p = reference::softmax(s, reference::sink(call, h));
        double top = -std::numeric_limits<double>::infinity(), entropy = 0;
        for (const double value : s) top = std::max(top, value);
        for (const double value : p) entropy -= value > 0 ? value * std::log(value) : 0;
        if (std::isinf(top)) {
          EXPECT_EQ(got.log_sum_exp[b][h][r].item<double>(), top);
          EXPECT_TRUE(got.mass[b][h][r].isnan().all().item<bool>());
          continue;
        }
        const double highest = std::max(top, reference::sink(call, h));
        double total = std::exp(reference::sink(call, h) - highest);
        for (const double value : s) total += std::exp(value - highest);
        const auto near = [&](const at::Tensor& value, double want, const char* what) {
          const double error = std::abs(value[b][h][r].item<double>() - want);
          EXPECT_TRUE(error <= tolerance * (1 + std::abs(want)))
              << what << " at " << b << h << r << ": " << error;
        };
        near(got.max_logit, top, "max logit");
        near(got.entropy, entropy, "entropy");
        near(got.log_sum_exp, highest + std::log(total), "log sum exp");
        near(got.first_mass, p[0], "first mass");
        for (int64_t g = 0; g < kGroups; ++g) {
          const auto& group =
              groups.flat[static_cast<size_t>((b * rows.size(1) + r) * kGroups + g)];
          double mass = 0, mean_exp = 0, group_top = -std::numeric_limits<double>::infinity();
          for (const int64_t j : group) group_top = std::max(group_top, s[static_cast<size_t>(j)]);
          for (const int64_t j : group) {
            mass += p[static_cast<size_t>(j)];
            mean_exp += std::isinf(group_top) ? 0
                                              : std::exp(s[static_cast<size_t>(j)] - group_top) /
                                                    static_cast<double>(group.size());
          }
          const double got_mass = got.mass[b][h][r][g].item<double>(),
                       got_score = got.score[b][h][r][g].item<double>();
          EXPECT_TRUE(std::abs(got_mass - mass) <= tolerance)
              << "mass of group " << g << ": " << got_mass << ", " << mass;
          if (mean_exp == 0) {
            EXPECT_EQ(got_score, -std::numeric_limits<double>::infinity());
          } else {
            const double want = group_top + std::log(mean_exp);
            EXPECT_TRUE(std::abs(got_score - want) <= tolerance * 2 * (1 + std::abs(want)))
                << "score of group " << g;
          }
        }
      }
    }
  }
}

/// recompute_rows against the double reference; rows without a key to see are NaN.
inline void expect_outputs(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const at::Tensor& rows, const AttentionCall& call) {
  const at::Tensor got = recompute_rows(q, k, v, rows, call);
  const double eps = q.scalar_type() == at::kDouble ? 0x1p-53 : 0x1p-24;
  const double tolerance = eps * static_cast<double>(q.size(3) + 8) * 40 * 8;
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t h = 0; h < q.size(1); ++h) {
      for (int64_t r = 0; r < rows.size(1); ++r) {
        const int64_t t = rows[b][r].item<int64_t>();
        const auto s = t < 0 ? std::vector<double>() : reference::scores(q, k, b, h, t, call);
        const bool any = std::any_of(s.begin(), s.end(), [](double x) { return !std::isinf(x); });
        const at::Tensor own = got[b][h][r].to(at::kDouble);
        const bool right = any ? (own - reference::output_row(q, k, v, b, h, t, call))
                                         .abs()
                                         .max()
                                         .item<double>() <= tolerance
                               : own.isnan().all().item<bool>();
        EXPECT_TRUE(right) << "row " << t << " of " << b << h << ": " << own;
      }
    }
  }
}

/// Sampled rows [B, sampled] with the last token and an unused one among them. Up to 4 used rows of
/// a key head are taken one by one, more side by side.
inline at::Tensor some_rows(int64_t batch, int64_t tokens, int64_t sampled = 3) {
  at::Tensor rows = at::empty({batch, sampled}, at::kLong);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t r = 0; r < sampled; ++r) rows[b][r] = (7 * b + 5 * r) % tokens;
    rows[b][1] = -1;
    rows[b][2] = tokens - 1;
  }
  return rows;
}

/// Which keys [B, 1, T, T] a call without a bias lets each query see.
inline at::Tensor visible_keys(const AttentionCall& call, int64_t batch, int64_t tokens) {
  const at::Tensor key = at::arange(tokens), query = key.unsqueeze(1);
  at::Tensor seen = at::ones({batch, 1, tokens, tokens}, at::kBool);
  if (call.is_causal) seen = seen.logical_and(key.le(query));
  if (call.window > 0) seen = seen.logical_and((query - key).abs().lt(call.window));
  if (call.documents) {
    seen = seen.logical_and(call.documents->view({batch, 1, 1, tokens})
                                .eq(call.documents->view({batch, 1, tokens, 1})));
  }
  return seen;
}

}  // namespace headscope::testing
