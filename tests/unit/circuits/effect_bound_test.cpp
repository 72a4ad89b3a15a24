#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "csrc/circuits/intervals.h"
#include "headscope/null_test.h"
#include "headscope/snapshot.h"

namespace headscope {
namespace {

using testing::HasSubstr;

constexpr int32_t kRows = 32, kQueries = 4, kPositions = 48;
const double kFloor = std::log(2.0);

/// Queries of kRows rows, one in each quarter of the positions, without values.
MarginTable queries(int64_t heads, std::mt19937& engine, int64_t references = 2) {
  MarginTable table{heads, references, {}, {}, {}};
  for (int32_t row = 0; row < kRows; ++row) {
    for (int32_t q = 0; q < kQueries; ++q) {
      table.row.push_back(row);
      table.position.push_back(q * kPositions / kQueries +
                               static_cast<int32_t>(engine() % (kPositions / kQueries)));
    }
  }
  table.values.assign(table.row.size() * static_cast<size_t>(heads * references), 0);
  return table;
}

/// Sets the margin of head h at every observation and reference.
template <typename Margin>
void fill(MarginTable& table, int64_t head, const Margin& margin) {
  for (size_t i = 0; i < table.row.size(); ++i)
    for (int64_t r = 0; r < table.references; ++r)
      table.values[(i * static_cast<size_t>(table.references) + static_cast<size_t>(r)) *
                       static_cast<size_t>(table.heads) +
                   static_cast<size_t>(head)] = static_cast<float>(margin(i, r));
}

TEST(EffectBound, CallsAMarginFarAboveTheFloorAndNoOther) {
  std::mt19937 engine(1);
  std::normal_distribution<double> normal;
  auto table = queries(3, engine);
  for (const int64_t head : {0, 1, 2})
    fill(table, head, [&](size_t, int64_t) { return (head == 1 ? 3 : 0) + normal(engine); });
  const auto result = effect_bound_test(table, kFloor, 1e-5);
  EXPECT_EQ(result.beats, std::vector<bool>({false, true, false}));
  EXPECT_TRUE(result.significant);
  EXPECT_EQ(result.max_z, result.z[1]);
  EXPECT_NEAR(result.excess[1], 3, .4);
  EXPECT_LT(result.p_value, 1e-5);
  EXPECT_EQ(result.rows, kRows);
}

TEST(EffectBound, SharesItsLevelAmongTheHeads) {
  std::mt19937 engine(5);
  std::normal_distribution<double> normal;
  for (const int64_t heads : {1, 16, 384}) {
    auto table = queries(heads, engine);
    for (int64_t head = 0; head < heads; ++head)
      fill(table, head, [&](size_t, int64_t) { return normal(engine); });
    const auto result = effect_bound_test(table, kFloor, 1e-4);
    const double tail = 1e-4 / static_cast<double>(heads);
    // 32 rows are fewer clusters than 48 positions.
    EXPECT_NEAR(circuits::student_tail(result.critical_z, kRows - 1), tail, 1e-6 * tail);
  }
}

TEST(EffectBound, IsTheSumOfBothClusteredVariances) {
  // Two rows would do, were there not a least number of clusters: values by hand.
  MarginTable table{1, 1, {0, 0, 1, 1, 2, 2, 3, 3}, {5, 6, 7, 8, 5, 6, 7, 8}, {}};
  table.values = {1, 2, 3, 4, 2, 3, 4, 5};
  // Mean 3; sums by row -3, 1, -1, 3: 20; by position -3, -1, 1, 3: 20.
  const double se = std::sqrt(2 * 20 / 64. * 4 / 3);
  const auto result = effect_bound_test(table, .5, .1);
  EXPECT_NEAR(result.z[0], 2.5 / se, 1e-12);
  EXPECT_NEAR(result.excess[0], 3, 1e-12);
  EXPECT_NEAR(result.critical_z, 1.637744353696, 1e-9);  // Student's at .9, 3 degrees
}

// A random effect of the position, common to all rows, is no preference: treating rows as
// independent calls it in most runs.
TEST(EffectBound, KeepsItsLevelUnderAPositionEffectThatAllRowsShare) {
  constexpr int kRuns = 300, kHeads = 4;
  std::mt19937 engine(3);
  std::normal_distribution<double> normal;
  int called = 0;
  for (int run = 0; run < kRuns; ++run) {
    auto table = queries(kHeads, engine);
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> effect(kPositions);
      for (double& value : effect) value = normal(engine);
      fill(table, head, [&](size_t i, int64_t) {
        return kFloor + effect[static_cast<size_t>(table.position[i])] + .3 * normal(engine);
      });
    }
    called += effect_bound_test(table, kFloor, .05).significant ? 1 : 0;
  }
  EXPECT_LE(called, kRuns * .05 + 3 * std::sqrt(kRuns * .05 * .95));
}

// A head that likes one fixed key has a margin at the queries that follow it, and nowhere else.
TEST(EffectBound, DoesNotCallAFixedPosition) {
  std::mt19937 engine(4);
  std::normal_distribution<double> normal;
  auto table = queries(1, engine);
  fill(table, 0, [&](size_t i, int64_t) {
    return (table.position[i] == kPositions - 1 ? 20 : 0) + .1 * normal(engine);
  });
  EXPECT_FALSE(effect_bound_test(table, kFloor, .05).significant);
}

// A recency slope has a margin over ordinary keys, none over the keys beside the targets.
TEST(EffectBound, AsksForAMarginOverEveryReference) {
  std::mt19937 engine(5);
  std::normal_distribution<double> normal;
  auto table = queries(1, engine);
  fill(table, 0, [&](size_t, int64_t r) { return (r == 0 ? 6 : .2) + .1 * normal(engine); });
  const auto result = effect_bound_test(table, kFloor, .05);
  EXPECT_FALSE(result.beats[0]);
  EXPECT_NEAR(result.excess[0], .2, .1);
}

TEST(EffectBound, KnowsAConstantMargin) {
  std::mt19937 engine(6);
  auto table = queries(2, engine);
  fill(table, 0, [](size_t, int64_t) { return 4; });
  const auto result = effect_bound_test(table, kFloor, 1e-4);
  EXPECT_TRUE(result.beats[0]);
  EXPECT_FALSE(result.beats[1]);
}

TEST(EffectBound, OneBadHeadTouchesNoOther) {
  std::mt19937 engine(7);
  auto table = queries(2, engine);
  fill(table, 0, [](size_t i, int64_t) { return i == 9 ? std::nan("") : 5; });
  fill(table, 1, [](size_t i, int64_t) {
    return i == 9 ? -std::numeric_limits<double>::infinity() : 4 + static_cast<double>(i % 2);
  });
  const auto result = effect_bound_test(table, kFloor, .01);
  EXPECT_TRUE(std::isnan(result.z[0]));
  EXPECT_FALSE(result.beats[0]);
  EXPECT_TRUE(result.beats[1]);
}

TEST(EffectBound, SaysNothingOnFewRowsOrPositions) {
  MarginTable three{1, 1, {0, 1, 2}, {4, 5, 6}, {9, 9, 9}};
  EXPECT_TRUE(std::isnan(effect_bound_test(three, kFloor, .05).z[0]));
  MarginTable at_one{1, 1, {0, 1, 2, 3, 4}, {4, 4, 4, 4, 4}, {9, 9, 9, 9, 9}};
  const auto result = effect_bound_test(at_one, kFloor, .05);
  EXPECT_TRUE(std::isnan(result.z[0]));
  EXPECT_FALSE(result.significant);
}

TEST(EffectBound, NamesWhatDoesNotFit) {
  const auto refusal = [](const MarginTable& table, double floor, double alpha) -> std::string {
    try {
      effect_bound_test(table, floor, alpha);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  const MarginTable table{1, 1, {0, 1}, {4, 5}, {1, 2}};
  EXPECT_THAT(refusal(table, kFloor, 0), HasSubstr("alpha is 0"));
  EXPECT_THAT(refusal(table, kNaN, .05), HasSubstr("floor"));
  auto broken = table;
  broken.values.pop_back();
  EXPECT_THAT(refusal(broken, kFloor, .05), HasSubstr("1 values"));
  broken = table;
  broken.row.pop_back();
  EXPECT_THAT(refusal(broken, kFloor, .05), HasSubstr("1 rows for 2"));
}

}  // namespace
}  // namespace headscope
