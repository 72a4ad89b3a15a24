#include "csrc/monitor/steps/steps.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace headscope {
namespace {

/// Steps under a budget that everything fits.
struct Timed {
  HealthCounters health;
  FaultGate gate{[](LogLevel, const std::string&) {}, health};
  Steps steps{options(), health, gate};

  Options options() {
    Options options;
    options.schedule.train_every = 2;
    options.schedule.budget = 1;
    options.clock = [] { return 0.0; };
    return options;
  }
  Steps::Due begin(int64_t step, bool is_analysis_idle) {
    steps.begin({.step = step, .tokens_seen = static_cast<double>(100 * step)});
    return steps.within_budget(steps.scheduled(/*has_probe=*/true), is_analysis_idle,
                               /*verification_due=*/false);
  }
};

TEST(Steps, CountFromTheLastToldOne) {
  Timed timed;
  timed.begin(7, true);
  timed.steps.begin({});
  EXPECT_EQ(timed.steps.current().step, 8);
}

TEST(Steps, PutOffWhatWouldWaitAndRecordTheProbeThatIsLate) {
  Timed timed;
  const Steps::Due busy = timed.begin(4, false);
  EXPECT_FALSE(busy.any());
  EXPECT_EQ(timed.health.deferred.load(), 1u);
  const Steps::Due idle = timed.begin(6, true);
  EXPECT_TRUE(idle.probe);
  EXPECT_FALSE(idle.train) << "a probe's analysis outlasts the step";
  const auto deferral = timed.steps.take_deferral();
  ASSERT_TRUE(deferral.has_value());
  EXPECT_EQ(deferral->step, 6);
  EXPECT_EQ(deferral->figures.at("due_step"), 4);
  EXPECT_FALSE(timed.steps.take_deferral().has_value()) << "once a probe";
}

TEST(Steps, GoOnAsSaved) {
  Timed before, after;
  before.begin(4, false);
  before.steps.probed();
  before.steps.probe_backoff().failed();
  after.steps.restore(after.steps.decoded(before.steps.save()));
  EXPECT_EQ(after.steps.save().schedule, before.steps.save().schedule);
  EXPECT_EQ(after.steps.current().step, 4);
  EXPECT_FALSE(after.steps.probe_backoff().ready());
  Steps::Saved damaged = before.steps.save();
  damaged.schedule.pop_back();
  EXPECT_THROW(after.steps.decoded(damaged), std::runtime_error);
}

}  // namespace
}  // namespace headscope
