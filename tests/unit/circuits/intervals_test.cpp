#include "csrc/circuits/intervals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <random>
#include <vector>

namespace headscope::circuits {
namespace {

TEST(StudentQuantile, IsTheTables) {
  EXPECT_NEAR(student_quantile(.025, 7), 2.3646242515927844, 1e-10);
  EXPECT_NEAR(student_quantile(1e-7, 40), 6.265672024833234, 1e-8);
  EXPECT_NEAR(student_quantile(.05, 1), std::tan(.45 * std::numbers::pi), 1e-10);
  EXPECT_NEAR(student_quantile(.5, 3), 0, 1e-10);
}

TEST(StudentTail, IsCauchysAtOneDegreeOfFreedom) {
  for (const double t : {-3., -.1, 0., .5, 1., 30., 1e4})
    EXPECT_NEAR(student_tail(t, 1), .5 - std::atan(t) / std::numbers::pi, 1e-12) << t;
}

TEST(StudentTail, IsTheNormalsAtManyDegrees) {
  for (const double t : {.5, 2., 4.})
    EXPECT_NEAR(student_tail(t, 1e7) / (.5 * std::erfc(t / std::numbers::sqrt2)), 1, 1e-5) << t;
}

TEST(StudentQuantile, InvertsTheTail) {
  for (const double freedom : {3., 15., 127.})
    for (const double tail : {.3, .01, 1e-6, 1e-9})
      EXPECT_NEAR(student_tail(student_quantile(tail, freedom), freedom) / tail, 1, 1e-8);
}

// A plain percentile interval of 8 examples covers 88 %.
TEST(BootstrapInterval, CoversTheMeanOfFewExamples) {
  std::mt19937_64 engine(1);
  std::normal_distribution<double> normal;
  int covered = 0;
  constexpr int kRuns = 400, kExamples = 8;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<double> values(kExamples);
    for (double& value : values) value = normal(engine);
    const Interval interval =
        bootstrap_interval(kExamples, .95, 1000, 7, [&](std::mt19937_64& draws) {
          double sum = 0;
          for (int i = 0; i < kExamples; ++i) sum += values[draw_below(draws, kExamples)];
          return sum / kExamples;
        });
    covered += interval.low <= 0 && 0 <= interval.high ? 1 : 0;
  }
  EXPECT_GE(covered, .915 * kRuns);
  EXPECT_LE(covered, .99 * kRuns);
}

}  // namespace
}  // namespace headscope::circuits
