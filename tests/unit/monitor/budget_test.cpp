#include "csrc/monitor/steps/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

namespace headscope {
namespace {

using Work = Budget::Work;

struct Simulation {
  double time = 1000;
  std::vector<std::pair<double, double>> costs;  // end, seconds

  std::function<double()> clock() {
    return [this] { return time; };
  }
  void run(Budget& budget, Work work, double seconds, double pieces = 1) {
    time += seconds;
    costs.emplace_back(time, seconds);
    budget.spent(work, seconds, pieces);
  }
  /// The dearest ten minutes.
  double worst_window() const {
    double worst = 0, sum = 0;
    size_t first = 0;
    for (const auto& [end, seconds] : costs) {
      sum += seconds;
      while (costs[first].first <= end - Budget::kWindowSeconds) sum -= costs[first++].second;
      worst = std::max(worst, sum);
    }
    return worst;
  }
};

TEST(Budget, AnyTenMinutesStayWithinTheShare) {
  for (const double probe_seconds : {0.05, 0.5, 2.0}) {
    Simulation simulation;
    Budget budget(0.01, simulation.clock());
    std::mt19937_64 random(3);
    std::uniform_real_distribution<double> scatter(0.8, 1.2);
    int64_t probes = 0, train = 0, passes = 0;
    while (simulation.time < 1000 + 4 * 3600) {
      simulation.time += 0.3 * scatter(random);  // a training step
      if (budget.allows(Work::kTrain)) {
        simulation.run(budget, Work::kTrain, 0.002 * scatter(random));
        ++train;
      }
      if (budget.allows(Work::kVerify, 2)) {
        simulation.run(budget, Work::kVerify, probe_seconds * scatter(random), 2);
        passes += 2;
      }
      if (budget.allows(Work::kProbe)) {
        simulation.run(budget, Work::kProbe, probe_seconds * scatter(random));
        ++probes;
      }
    }
    const double used = simulation.worst_window() / (0.01 * Budget::kWindowSeconds);
    RecordProperty("worst_window_at_" + std::to_string(probe_seconds), std::to_string(used));
    EXPECT_LE(used, 1.2) << "a probe of " << probe_seconds << " s";
    // The budget is there to be used: a bound that never measures would pass the line above.
    EXPECT_GE(probes, static_cast<int64_t>(0.3 * 4 * 3600 * 0.01 / probe_seconds));
    EXPECT_GT(passes, 0);
    EXPECT_GT(train, 4000);
  }
}

TEST(Budget, WorkThatNeverFitsRunsAsOftenAsItsShareAllows) {
  Simulation simulation;
  Budget budget(0.01, simulation.clock());
  std::vector<double> starts;
  while (simulation.time < 1000 + 20 * 3600) {
    simulation.time += 5;
    if (!budget.allows(Work::kProbe)) continue;
    starts.push_back(simulation.time);
    simulation.run(budget, Work::kProbe, 30);  // five times what ten minutes allow
  }
  ASSERT_GE(starts.size(), 10u);
  for (size_t i = 1; i < starts.size(); ++i)
    EXPECT_GE(starts[i] - starts[i - 1], 30 / (0.01 * 0.75) - 10);
}

TEST(Budget, WithoutABoundTheClockIsNeverRead) {
  Budget budget(0, []() -> double { throw std::logic_error("read"); });
  budget.spent(Work::kProbe, 1e9);
  EXPECT_TRUE(budget.allows(Work::kProbe));
  EXPECT_EQ(budget.now(), 0);
  EXPECT_EQ(budget.used_ratio(), 0);
}

TEST(Budget, AClockThatJumpsNeitherStopsNorFloodsMeasuring) {
  for (const double jump : {-3600.0, 3600.0}) {
    Simulation simulation;
    Budget budget(0.01, simulation.clock());
    for (int i = 0; i < 10; ++i) simulation.run(budget, Work::kProbe, 0.4);
    simulation.time += jump;
    int64_t allowed = 0;
    for (int step = 0; step < 3600; ++step) {
      simulation.time += 1;
      if (!budget.allows(Work::kProbe)) continue;
      ++allowed;
      simulation.run(budget, Work::kProbe, 0.4);
    }
    EXPECT_GE(allowed, 50) << jump;
    EXPECT_LE(allowed, 90) << jump;
  }
}

TEST(Budget, TheWindowTravelsWithTheState) {
  Simulation first;
  Budget saved(0.01, first.clock());
  while (saved.allows(Work::kProbe)) first.run(saved, Work::kProbe, 0.5);
  Simulation second;
  second.time = 5;  // another process: another zero
  Budget loaded(0.01, second.clock());
  loaded.restore(saved.save());
  EXPECT_FALSE(loaded.allows(Work::kProbe));
  EXPECT_EQ(loaded.expected(Work::kProbe), saved.expected(Work::kProbe));
  second.time += Budget::kWindowSeconds + 1;
  EXPECT_TRUE(loaded.allows(Work::kProbe));
  EXPECT_THROW(loaded.restore({1, 2}), std::runtime_error);
  EXPECT_THROW(loaded.restore({1, 2, 3, 4, 5, 6, 99}), std::runtime_error);
}

TEST(Budget, TheListOfCostsStaysShort) {
  Simulation simulation;
  Budget budget(0.001, simulation.clock());
  for (int i = 0; i < 200000; ++i) {
    simulation.time += 0.5;
    budget.spent(Work::kTrain, 1e-4);
    if (i % 100 == 0) budget.spent(Work::kProbe, 5);
  }
  EXPECT_LE(budget.save().size(), 3u * 2500);
}

}  // namespace
}  // namespace headscope
