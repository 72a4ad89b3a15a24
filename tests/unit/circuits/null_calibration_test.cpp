#include "headscope/null_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "tests/support/errors.h"
#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

constexpr int64_t kContext = 64;

ScreenRows planted(int64_t count) {
  std::vector<int64_t> pairs;
  for (int64_t r = 0; r < count; ++r) pairs.push_back(5 + (7 * r) % 27);
  return planted_screen_rows(pairs, kContext, ScreenControls::kOrdinary);
}

/// Attention that is 1 / T but where `likes` says so.
HeadAttention attention_by(const ScreenRows& rows, std::vector<float>& weights,
                           std::function<double(size_t head, size_t row, int64_t t)> weight) {
  return [&rows, &weights, weight](size_t head) {
    weights.clear();
    for (size_t r = 0; r < rows.query.size(); ++r)
      for (int64_t t = 0; t < kContext; ++t)
        weights.push_back(static_cast<float>(weight(head, r, t)));
    return std::span<const float>(weights);
  };
}

TEST(SelectivityNull, IsOneForAUniformHead) {
  const auto rows = planted(40);
  std::vector<float> weights;
  for (const auto targets : {NullTargets::kPermuted, NullTargets::kUniform}) {
    const auto null = calibrate_selectivity_null(
        rows, 0, 1, attention_by(rows, weights, [](size_t, size_t, int64_t) { return 1 / 64.; }),
        {.targets = targets});
    EXPECT_NEAR(null.pooled.max, 1, 1e-6);
    EXPECT_NEAR(null.pooled.median, 1, 1e-6);
    EXPECT_NEAR(null.heads[0].ratio, 1, 1e-6);
    EXPECT_EQ(null.recall_threshold, 2);
    EXPECT_EQ(null.rows, 40);
  }
}

// A permuted target beyond a row's query is dropped, so that short rows enter a draw less often.
TEST(SelectivityNull, IsOneForAUniformHeadAtDifferentQueries) {
  std::vector<int64_t> first, query;
  for (int64_t r = 0; r < 40; ++r) {
    query.push_back(20 + 5 * r);
    first.push_back(query.back() - 12);
  }
  const auto rows = natural_screen_rows(first, query, 256, ScreenControls::kOrdinary);
  std::vector<float> weights(40 * 256);
  for (size_t r = 0; r < 40; ++r)
    for (int64_t t = 0; t <= query[r]; ++t)
      weights[r * 256 + static_cast<size_t>(t)] = 1 / static_cast<float>(query[r] + 1);
  for (const auto targets : {NullTargets::kPermuted, NullTargets::kUniform}) {
    const auto null = calibrate_selectivity_null(
        rows, 0, 1, [&](size_t) { return std::span<const float>(weights); }, {.targets = targets});
    EXPECT_NEAR(null.pooled.max, 1, 1e-5);
    EXPECT_NEAR(null.pooled.median, 1, 1e-5);
  }
}

TEST(SelectivityNull, APerfectHeadIsFarAboveItsOwn) {
  const auto rows = planted(40);
  std::vector<float> weights;
  const auto attention = attention_by(rows, weights, [&](size_t, size_t r, int64_t t) {
    return t == rows.patterns[0].positions[r][0] ? .9 : .1 / 63;
  });
  const auto null = calibrate_selectivity_null(rows, 0, 1, attention, {});
  EXPECT_NEAR(null.heads[0].selectivity, .9 * 63 / .1, 1e-3);
  EXPECT_NEAR(null.heads[0].null.max, 1, 1e-5);  // a row's own target is never drawn for it
}

// Positions that are often targets: permuting keeps them, uniform draws take the liking for an
// effect.
TEST(SelectivityNull, PermutedTargetsForgiveALikingForPositions) {
  const auto rows = planted(60);
  std::vector<float> weights;
  const auto attention = attention_by(
      rows, weights, [](size_t, size_t, int64_t t) { return t >= 6 && t < 33 ? .03 : .005; });
  const auto permuted = calibrate_selectivity_null(rows, 0, 1, attention, {});
  const auto uniform =
      calibrate_selectivity_null(rows, 0, 1, attention, {.targets = NullTargets::kUniform});
  EXPECT_NEAR(permuted.heads[0].ratio, 1, .1);
  EXPECT_GT(uniform.heads[0].ratio, 1.4);
}

TEST(SelectivityNull, RaisesTheRecallThresholdWithItsP99) {
  const auto rows = planted(40);
  std::vector<float> weights;
  // Controls nearly without attention, the planted region with it.
  const auto attention = attention_by(
      rows, weights, [](size_t, size_t, int64_t t) { return t >= 6 && t < 33 ? .03 : 1e-4; });
  const auto null = calibrate_selectivity_null(rows, 0, 1, attention, {});
  EXPECT_GT(null.recall_threshold, 2);
  EXPECT_EQ(null.recall_threshold, null.pooled.p99);
}

TEST(SelectivityNull, LeavesAHeadWithNaNOut) {
  const auto rows = planted(40);
  std::vector<float> weights;
  const auto attention = attention_by(rows, weights, [](size_t head, size_t r, int64_t t) {
    return head == 1 && r == 3 && t == 20 ? kNaN : 1 / 64.;
  });
  const auto null = calibrate_selectivity_null(rows, 0, 2, attention, {});
  EXPECT_TRUE(std::isnan(null.heads[1].selectivity));
  EXPECT_TRUE(std::isnan(null.heads[1].ratio));
  EXPECT_NEAR(null.pooled.max, 1, 1e-6);
}

TEST(SelectivityNull, IsAFunctionOfItsSeed) {
  const auto rows = planted(40);
  std::vector<float> weights;
  const auto attention = attention_by(rows, weights, [](size_t, size_t r, int64_t t) {
    return static_cast<double>((7 * r + 13 * static_cast<size_t>(t)) % 31) / 31;
  });
  const auto max_with = [&](uint32_t seed) {
    return calibrate_selectivity_null(rows, 0, 1, attention, {.seed = seed}).pooled.max;
  };
  EXPECT_EQ(max_with(1), max_with(1));
  EXPECT_NE(max_with(1), max_with(2));
}

TEST(SelectivityNull, RefusesWithValueAndFix) {
  const auto rows = planted(40);
  std::vector<float> weights;
  const auto attention =
      attention_by(rows, weights, [](size_t, size_t, int64_t) { return 1 / 64.; });
  const auto refused = [&](const ScreenRows& of, size_t pattern, int64_t draws,
                           const char* message) {
    EXPECT_THAT(error_of<std::invalid_argument>([&] {
                  calibrate_selectivity_null(of, pattern, 1, attention, {.draws = draws});
                }),
                HasSubstr(message));
  };
  refused(rows, 0, 0, "draws must be at least 1, got 0");
  refused(rows, 6, 1, "pattern 6 asked of rows that have 6");
  refused(rows, 1, 1, "previous-token are the same in every row");
  refused(planted(1), 0, 1, "at least 2 rows must count for induction, got 1");
}

TEST(RatioNull, CountsTheHeadsAboveIt) {
  const std::vector<double> real = {5, 12, 30, 7, kNaN}, null = {6, 10, 11, 4, 900};
  const auto result = calibrate_ratio_null({real, 500}, {null, 500});
  EXPECT_EQ(result.heads, 4);
  EXPECT_EQ(result.null.max, 11);
  EXPECT_EQ(result.null.median, 8);
  EXPECT_EQ(result.above_max, 2);
  EXPECT_EQ(result.above_own, 3);
}

// Published for Pythia-1B, where the null has N = 2000 and the other side 500: the counts are
// reproduced as if N were the same, and the comparison as it was made is refused.
TEST(RatioNull, CountsThePublishedHeads) {
  std::vector<double> real, null;
  for (const auto& head : test::pythia1b_screen()) {
    real.push_back(head.participation_ratio);
    null.push_back(head.null_participation_ratio);
  }
  const auto result = calibrate_ratio_null({real, 2000}, {null, 2000});
  EXPECT_TRUE(test::close(result.null.max, 94.26834106445312, 1e-7));
  EXPECT_TRUE(test::close(result.null.p99, 82.35217498779302, 1e-7));
  EXPECT_TRUE(test::close(result.null.p95, 36.54876613616941, 1e-7));
  EXPECT_TRUE(test::close(result.null.median, 4.681809186935425, 1e-7));
  EXPECT_EQ(result.heads, 128);
  EXPECT_EQ(result.above_max, 1);
  EXPECT_EQ(result.above_p99, 1);
  EXPECT_EQ(result.above_p95, 17);
  EXPECT_EQ(result.above_own, 121);
  EXPECT_THROW(calibrate_ratio_null({real, 500}, {null, 2000}), std::invalid_argument);
}

TEST(RatioNull, RefusesAnotherN) {
  const std::vector<double> ratios = {5, 12};
  EXPECT_THAT(error_of<std::invalid_argument>([&] {
                calibrate_ratio_null({ratios, 500}, {ratios, 2000});
              }),
              HasSubstr("over N = 500 rows cannot be compared with a null over N = 2000"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] {
                calibrate_ratio_null({ratios, 500}, {std::span(ratios).first(1), 500});
              }),
              HasSubstr("2 heads cannot be compared with 1"));
}

}  // namespace
}  // namespace headscope
