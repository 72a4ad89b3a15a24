#include "csrc/monitor/steps/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace headscope {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> probes(const Schedule& schedule, int64_t steps, double tokens_a_step) {
  Scheduler scheduler(schedule);
  std::vector<int64_t> due;
  for (int64_t step = 0; step < steps; ++step) {
    const double tokens = static_cast<double>(step) * tokens_a_step;
    if (!scheduler.probe_due(step, tokens)) continue;
    due.push_back(step);
    scheduler.probed(step, tokens);
  }
  return due;
}

TEST(Schedule, ProbesAreLogSpacedInTokensUpToTheLongestGap) {
  EXPECT_THAT(probes({.probes_per_octave = 1, .longest_probe_gap = 40}, 140, 1000),
              ElementsAre(0, 1, 2, 4, 8, 16, 32, 64, 104));
}

TEST(Schedule, WithoutTokensStepsAreSpaced) {
  EXPECT_THAT(probes({.probes_per_octave = 1, .longest_probe_gap = 40}, 70, kNaN),
              ElementsAre(0, 1, 2, 4, 8, 16, 32, 64));
}

TEST(Schedule, ShortestGapHolds) {
  EXPECT_THAT(
      probes({.probes_per_octave = 8, .longest_probe_gap = 10, .shortest_probe_gap = 5}, 30, 10),
      ElementsAre(0, 5, 10, 15, 20, 25));
}

TEST(Schedule, GrowingBatchesAreSpacedByTokensNotSteps) {
  Scheduler scheduler({.probes_per_octave = 1, .longest_probe_gap = 1000});
  scheduler.probed(100, 1e6);
  EXPECT_FALSE(scheduler.probe_due(150, 1.9e6));
  EXPECT_TRUE(scheduler.probe_due(110, 2e6));
}

TEST(Schedule, ACounterThatBeginsAnewIsProbedAgain) {
  Scheduler scheduler({.probes_per_octave = 1, .longest_probe_gap = 1000});
  scheduler.probed(17600, 1e9);
  EXPECT_TRUE(scheduler.probe_due(0, 0));
  scheduler.probed(0, 0);
  EXPECT_TRUE(scheduler.probe_due(1, 1000));
}

TEST(Schedule, ZeroMeansNever) {
  EXPECT_THAT(probes({.probes_per_octave = 0}, 50, 10), ElementsAre());
  EXPECT_FALSE(Scheduler({.train_every = 0}).train_due(0));
  EXPECT_TRUE(Scheduler({.train_every = 10}).train_due(20));
  EXPECT_FALSE(Scheduler({.train_every = 10}).train_due(21));
}

TEST(Schedule, RestoredStateGoesOnAtTheSameSteps) {
  const Schedule schedule{.probes_per_octave = 2, .longest_probe_gap = 30};
  const auto unbroken = probes(schedule, 200, 64);
  Scheduler first(schedule);
  std::vector<int64_t> due;
  for (int64_t step = 0; step < 77; ++step) {
    if (!first.probe_due(step, 64.0 * step)) continue;
    due.push_back(step);
    first.probed(step, 64.0 * step);
  }
  Scheduler second(schedule);
  second.restore(first.state());
  for (int64_t step = 77; step < 200; ++step) {
    if (!second.probe_due(step, 64.0 * step)) continue;
    due.push_back(step);
    second.probed(step, 64.0 * step);
  }
  EXPECT_EQ(due, unbroken);
}

}  // namespace
}  // namespace headscope
