#include "csrc/monitor/analysis/null_tests.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "csrc/monitor/analysis/attention_readings.h"
#include "tests/unit/monitor/probed_layer.h"

namespace headscope {
namespace {

using test::blank;
using test::capture_of;
using test::induction_bias;
using test::kContext;
using test::kExamples;
using test::kHeads;
using test::kPatterns;
using test::make_probe;
using test::windowed;

const std::vector<NullsWanted> kAll(kPatterns);

std::vector<PatternNulls> tests_of(const Capture& capture, const ProbePlan& plan, double alpha,
                                   uint64_t seed, std::vector<HeadReading>& readings) {
  return test_nulls(capture, plan, kAll, {.alpha = alpha, .floor = std::log(2.0), .seed = seed},
                    readings);
}

TEST(NullTests, LeaveOutHeadsThatCannotSeeTheCandidates) {
  const auto [batch, plan] = make_probe();
  const at::Tensor noise = at::randn({kExamples, kHeads, kContext, kContext},
                                     at::detail::createCPUGenerator(4), at::kFloat);
  Capture capture;
  capture.layers[0] = capture_of(plan, noise);
  capture.layers[1] = windowed(plan, noise, 20);
  std::vector<HeadReading> readings(2 * kHeads);
  for (auto& reading : readings) reading.patterns.resize(kPatterns);
  const auto nulls = tests_of(capture, plan, 1e-3, 5, readings);
  for (size_t p = 0; p < kPatterns; ++p) {
    for (size_t h = 0; h < kHeads; ++h) {
      EXPECT_TRUE(std::isfinite(nulls[p].margin->z[h])) << p;
      const bool in_sight = p == 1 || p == 4 || p == 5;  // of the last 20 keys
      EXPECT_EQ(std::isfinite(nulls[p].margin->z[kHeads + h]), in_sight) << p;
      if (plan.place_in_queries(p) >= 0) continue;
      EXPECT_TRUE(std::isnan(nulls[p].mass->z[kHeads + h])) << p;
    }
  }
}

TEST(NullTests, FindThePlantedHeadAndNoOther) {
  const auto [batch, plan] = make_probe();
  const at::Tensor noise = at::randn({kExamples, kHeads, kContext, kContext},
                                     at::detail::createCPUGenerator(2), at::kFloat);
  Capture capture;
  capture.layers[0] = capture_of(plan, noise);
  capture.layers[1] = capture_of(plan, noise.flip(0) + induction_bias(batch, 2.0));
  std::vector<HeadReading> readings(2 * kHeads);
  for (auto& reading : readings) reading.patterns.resize(kPatterns);
  const auto nulls = tests_of(capture, plan, 1e-3, 5, readings);
  ASSERT_TRUE(nulls[0].margin.has_value());
  EXPECT_TRUE(nulls[0].margin->significant);
  for (size_t h = 0; h < readings.size(); ++h)
    EXPECT_EQ(nulls[0].margin->beats[h], h == kHeads + 1) << h;
  EXPECT_GT(readings[kHeads + 1].patterns[0].margin_z, nulls[0].margin->critical_z);
  for (size_t p = 1; p < kPatterns; ++p) EXPECT_FALSE(nulls[p].margin->significant) << p;
}

// Exchangeable scores in, level alpha out, for every pattern: over 200 probes a family-wise test
// must not fire more often than alpha allows. With scores of this spread the log-mean-exp of
// several targets lies far above a single key's.
TEST(NullTests, KeepTheirLevelOnNoise) {
  const auto [batch, plan] = make_probe();
  constexpr int kProbes = 200;
  constexpr double kAlpha = 0.05;
  std::vector<int> fired(kPatterns, 0);
  for (int i = 0; i < kProbes; ++i) {
    Capture capture;
    capture.layers[0] = capture_of(
        plan,
        2 * at::randn({kExamples, kHeads, kContext, kContext},
                      at::detail::createCPUGenerator(100 + static_cast<uint64_t>(i)), at::kFloat));
    auto readings = blank();
    const auto nulls = tests_of(capture, plan, kAlpha, static_cast<uint64_t>(i), readings);
    for (size_t p = 0; p < kPatterns; ++p) fired[p] += nulls[p].margin->significant ? 1 : 0;
  }
  // Binomial(200, .05): mean 10, sd 3.1; above 22 has probability 2e-4.
  for (size_t p = 0; p < kPatterns; ++p) EXPECT_LE(fired[p], 22) << plan.patterns[p].name;
}

// From the last token alone it is a previous-token head.
TEST(NullTests, AFixedPositionIsNeverPreviousToken) {
  const auto [batch, plan] = make_probe();
  at::Tensor bias = at::randn({kExamples, kHeads, kContext, kContext},
                              at::detail::createCPUGenerator(6), at::kFloat);
  bias.select(1, 1).select(2, kContext - 2) += 20;
  Capture capture;
  capture.layers[0] = capture_of(plan, bias);
  auto readings = blank();
  read_probe_attention(capture.layers[0], plan, readings);
  const auto nulls = tests_of(capture, plan, .05, 1, readings);
  EXPECT_FALSE(nulls[1].margin->beats[1]);
  EXPECT_LT(readings[1].patterns[1].selectivity, 30. * (plan.queries.span - 1) / 255);
  EXPECT_LT(readings[1].patterns[1].mass, .1);
}

// One random preference for each position, the same in every row.
TEST(NullTests, KeepTheirLevelUnderPositionEffects) {
  const auto [batch, plan] = make_probe();
  constexpr int kProbes = 60;
  std::vector<int> fired(kPatterns, 0);
  for (int i = 0; i < kProbes; ++i) {
    auto random = at::detail::createCPUGenerator(900 + static_cast<uint64_t>(i));
    const at::Tensor shared = at::randn({1, kHeads, 1, kContext}, random, at::kFloat);
    Capture capture;
    capture.layers[0] = capture_of(
        plan, shared + at::randn({kExamples, kHeads, kContext, kContext}, random, at::kFloat));
    auto readings = blank();
    const auto nulls = tests_of(capture, plan, .05, static_cast<uint64_t>(i), readings);
    for (size_t p = 0; p < kPatterns; ++p) fired[p] += nulls[p].margin->significant ? 1 : 0;
  }
  // Binomial(60, .05): mean 3, sd 1.7; above 10 has probability 3e-4. Not first-token: a preference
  // for position 0 is that pattern itself.
  for (size_t p = 0; p < kPatterns; ++p) {
    if (plan.patterns[p].name == "first-token") continue;
    EXPECT_LE(fired[p], 10) << plan.patterns[p].name;
  }
}

TEST(NullTests, CountTheRowsThatEntered) {
  const auto [batch, plan] = make_probe();
  Capture capture;
  capture.layers[0] = capture_of(plan, at::randn({kExamples, kHeads, kContext, kContext}));
  auto readings = blank();
  for (const auto& nulls : tests_of(capture, plan, .05, 1, readings))
    EXPECT_EQ(nulls.margin->rows, kExamples);
}

}  // namespace
}  // namespace headscope
