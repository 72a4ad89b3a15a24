#include "headscope/null_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>

#include "headscope/snapshot.h"

namespace headscope {
namespace {

using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Independent standard normal values; row's target is candidate row * 7 mod candidates.
CandidateTable noise(int64_t rows, int64_t candidates, int64_t heads, unsigned seed) {
  CandidateTable table{rows, candidates, heads, {}, {}};
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < rows * candidates * heads; ++i) table.values.push_back(normal(engine));
  for (int64_t row = 0; row < rows; ++row)
    table.target.push_back(static_cast<int32_t>(row * 7 % candidates));
  return table;
}

float& value(CandidateTable& table, int64_t row, int64_t candidate, int64_t head) {
  return table
      .values[static_cast<size_t>((row * table.candidates + candidate) * table.heads + head)];
}

void add_signal(CandidateTable& table, int64_t head, float by) {
  for (int64_t row = 0; row < table.rows; ++row)
    value(table, row, table.target[static_cast<size_t>(row)], head) += by;
}

struct Enumerated {
  double z;
  double excess;
};

/// Double reference: z and excess over every assignment of targets, by enumeration.
Enumerated enumerate(CandidateTable table, int64_t head) {
  std::vector<double> sums;
  std::vector<int64_t> assigned(table.target.begin(), table.target.end());
  const auto sum_of = [&] {
    double sum = 0;
    for (int64_t row = 0; row < table.rows; ++row)
      sum += static_cast<double>(value(table, row, assigned[static_cast<size_t>(row)], head));
    return sum;
  };
  const double observed = sum_of();
  std::vector<size_t> order(assigned.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  do {
    for (size_t i = 0; i < order.size(); ++i) assigned[i] = table.target[order[i]];
    sums.push_back(sum_of());
  } while (std::next_permutation(order.begin(), order.end()));
  double mean = 0, variance = 0;
  for (const double sum : sums) mean += sum / static_cast<double>(sums.size());
  for (const double sum : sums)
    variance += (sum - mean) * (sum - mean) / static_cast<double>(sums.size());
  return {(observed - mean) / std::sqrt(variance),
          (observed - mean) / static_cast<double>(table.rows)};
}

TEST(MaxStatisticTest, HasTheMomentsOfEveryAssignment) {
  const auto table = noise(5, 4, 19, 3);  // targets repeat; heads fill a block and more
  const auto result = max_statistic_test(table, .05, 1);
  for (int64_t head = 0; head < table.heads; ++head) {
    const Enumerated want = enumerate(table, head);
    EXPECT_LE(std::abs(result.z[static_cast<size_t>(head)] - want.z), 1e-12) << head;
    EXPECT_LE(std::abs(result.excess[static_cast<size_t>(head)] - want.excess), 1e-12) << head;
  }
}

TEST(MaxStatisticTest, KeepsTheRateOfFalseCalls) {
  int calls = 0;
  for (unsigned run = 0; run < 400; ++run)
    calls += max_statistic_test(noise(16, 12, 6, run), .05, run).significant;
  EXPECT_LE(calls, 400 * .05 + 3 * std::sqrt(400 * .05 * .95));
  EXPECT_GE(calls, 4);  // and is not conservative without need
}

TEST(MaxStatisticTest, FindsASignalAndItsHeadAlone) {
  auto table = noise(64, 32, 16, 5);
  add_signal(table, 11, 1);
  const auto result = max_statistic_test(table, 1e-3, 9);
  EXPECT_TRUE(result.significant);
  for (size_t head = 0; head < 16; ++head) EXPECT_EQ(result.beats[head], head == 11) << head;
  EXPECT_EQ(result.max_z, result.z[11]);
}

TEST(MaxStatisticTest, DrawsEnoughToResolveTheLevel) {
  auto table = noise(32, 32, 4, 5);
  add_signal(table, 0, 5);
  EXPECT_EQ(max_statistic_test(table, .05, 1).draws, 999);
  const auto fine = max_statistic_test(table, 1 / 5000., 1);
  EXPECT_EQ(fine.draws, 5000);
  EXPECT_EQ(fine.p_value, 1 / 5001.);
  EXPECT_EQ(fine.alpha, 1 / 5000.);
  EXPECT_TRUE(fine.significant);
}

TEST(MaxStatisticTest, StopsEarlyWhereNothingIsToBeFound) {
  const auto result = max_statistic_test(noise(32, 32, 4, 6), 1e-4, 1);
  EXPECT_LT(result.draws, 2000);
  EXPECT_EQ(result.p_value, 20. / static_cast<double>(result.draws));
  EXPECT_FALSE(result.significant);
}

TEST(MaxStatisticTest, CriticalValueIsTheLevelsOrderStatistic) {
  auto table = noise(32, 32, 4, 5);
  add_signal(table, 0, 5);
  const auto at = [&](double alpha, int64_t draws) {
    return max_statistic_test(table, alpha, 1, draws).critical_z;
  };
  EXPECT_GT(at(.01, 999), at(.05, 999));
  EXPECT_EQ(at(1e-5, 999), at(1e-3, 999));  // both the largest draw
}

TEST(MaxStatisticTest, IsAFunctionOfItsSeed) {
  const auto table = noise(16, 16, 4, 2);
  const auto run = [&](uint64_t seed) { return max_statistic_test(table, .05, seed).critical_z; };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(MaxStatisticTest, OneBadHeadTouchesNoOther) {
  auto table = noise(16, 16, 4, 2);
  const auto clean = max_statistic_test(table, .05, 1);
  for (const float bad : {std::nanf(""), kInf}) {
    auto broken = table;
    add_signal(broken, 2, 100);
    value(broken, 3, 5, 2) = bad;
    const auto result = max_statistic_test(broken, .05, 1);
    EXPECT_TRUE(std::isnan(result.z[2]));
    EXPECT_FALSE(result.beats[2]);
    for (const size_t head : {0, 1, 3}) EXPECT_EQ(result.z[head], clean.z[head]);
  }
}

TEST(MaxStatisticTest, MaskedScoresCountAsTheSmallest) {
  auto table = noise(16, 16, 2, 2);
  float smallest = kInf;
  for (int64_t row = 0; row < 16; ++row)
    for (int64_t c = 0; c < 16; ++c) smallest = std::min(smallest, value(table, row, c, 1));
  auto masked = table;
  value(masked, 3, 5, 1) = -kInf;
  value(table, 3, 5, 1) = smallest;
  EXPECT_EQ(max_statistic_test(masked, .05, 1).z, max_statistic_test(table, .05, 1).z);
}

TEST(MaxStatisticTest, AConstantHeadTakesNoPart) {
  auto table = noise(16, 16, 2, 2);
  for (int64_t row = 0; row < 16; ++row)
    for (int64_t c = 0; c < 16; ++c) value(table, row, c, 0) = .3f;
  const auto result = max_statistic_test(table, .05, 1);
  EXPECT_EQ(result.z[0], 0);
  EXPECT_EQ(result.max_z, result.z[1]);
  auto alone = noise(16, 16, 1, 2);
  std::fill(alone.values.begin(), alone.values.end(), .3f);
  const auto nothing = max_statistic_test(alone, .05, 1);
  EXPECT_EQ(nothing.p_value, 1);
  EXPECT_FALSE(nothing.significant || nothing.beats[0]);
}

TEST(MaxStatisticTest, AHeadThatLooksAtOnePositionOnlyIsNoSignal) {
  // Large values in one column whatever the row: targets permuted, nothing changes.
  auto table = noise(32, 32, 2, 2);
  for (int64_t row = 0; row < 32; ++row) value(table, row, 7, 0) += 50;
  EXPECT_FALSE(max_statistic_test(table, .01, 1).beats[0]);
}

TEST(MaxStatisticTest, HoldsOnOneRowAndOnNone) {
  EXPECT_FALSE(max_statistic_test(noise(1, 4, 2, 1), .05, 1).significant);
  const auto empty = max_statistic_test(noise(0, 4, 2, 1), .05, 1);
  EXPECT_EQ(empty.z.size(), 2u);
  EXPECT_TRUE(std::isnan(empty.z[0]));
}

TEST(MaxStatisticTest, NamesWhatDoesNotFit) {
  const auto refusal = [](CandidateTable table, double alpha) -> std::string {
    try {
      max_statistic_test(table, alpha, 1);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  auto table = noise(4, 4, 2, 1);
  EXPECT_THAT(refusal(table, 0), HasSubstr("alpha is 0"));
  table.values.pop_back();
  EXPECT_THAT(refusal(table, .05), HasSubstr("31 values"));
  table = noise(4, 4, 2, 1);
  table.target[2] = 4;
  EXPECT_THAT(refusal(table, .05), HasSubstr("target 4 outside 0..3"));
}

TEST(MaxStatisticTest, HasNoCriticalValueWhereDrawingStoppedBeforeItsLevel) {
  // The largest of a few draws lies far below what the level asks for.
  const auto table = noise(32, 32, 4, 6);
  const auto stopped = max_statistic_test(table, 1e-4, 1);
  EXPECT_LT(stopped.draws, 2000);
  EXPECT_TRUE(std::isnan(stopped.critical_z));
  const auto whole = max_statistic_test(table, 1e-4, 1, 0, StopDrawing::kNever);
  EXPECT_EQ(whole.draws, 10000);
  EXPECT_GT(whole.critical_z, 3.5);
}

TEST(SpentAlpha, NeverSpendsMoreThanItHas) {
  double sum = 0;
  for (int64_t probe = 1; probe <= 100000; ++probe) sum += 6 * spent_alpha(.05, 6, 100, probe);
  EXPECT_LE(sum, .05);
  EXPECT_GE(sum, .0497);
}

TEST(SpentAlpha, IsAtMostWhatHasAccumulatedAtEveryProbe) {
  double spent = 0;
  for (int64_t probe = 1; probe <= 3000; ++probe) {
    spent += spent_alpha(.05, 6, 100, probe);
    const auto n = static_cast<double>(probe);
    EXPECT_LE(spent, .05 / 6 * n / (n + 100) * (1 + 1e-12)) << probe;
  }
}

TEST(SpentAlpha, SavesALevelUpUntilNullDrawsResolveIt) {
  int64_t tests = 0, skipped = 0;
  for (int64_t probe = 1; probe <= 2000; ++probe) {
    const double level = spent_alpha(.05, 6, 100, probe);
    (level > 0 ? tests : skipped) += 1;
    EXPECT_TRUE(level == 0 || level >= 1e-5 * (1 - 1e-6)) << probe << ": " << level;
    EXPECT_TRUE(level > 0 || probe > 150) << probe;
  }
  EXPECT_GT(skipped, 1000);
  EXPECT_GT(tests, 200);
}

TEST(SpentAlpha, RefusesWhatIsNoLevelOrNoCount) {
  EXPECT_DOUBLE_EQ(spent_alpha(.05, 6, 100, 1), .05 / 6 / 101);
  EXPECT_THROW(spent_alpha(.05, 6, 100, 0), std::invalid_argument);
  EXPECT_THROW(spent_alpha(.05, 6, 0, 1), std::invalid_argument);
  EXPECT_THROW(spent_alpha(1, 6, 100, 1), std::invalid_argument);
  EXPECT_THROW(spent_alpha(.05, 6, 100, 1, 0), std::invalid_argument);
}

}  // namespace
}  // namespace headscope
