#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <stdexcept>

#include "tests/unit/circuits/tracked_run.h"

namespace headscope {
namespace {

using test::TrackedRun;
using testing::HasSubstr;

/// One step of a random life: readings around the thresholds, NaN, tests, verdicts, phase restarts.
std::vector<Event> wander(TrackedRun& run, std::mt19937& engine) {
  const auto pick = [&](const std::vector<double>& values) {
    return values[engine() % values.size()];
  };
  for (auto& head : run.heads) {
    head.finite = engine() % 20 != 0;
    for (auto& pattern : head.patterns)
      pattern = {.selectivity = pick({1, 3, 10, 60, 60, 90, kNaN}),
                 .mass = pick({.01, .5, .5, kNaN}),
                 .margin = pick({.1, 1, 3, kNaN})};
  }
  run.nulls.assign(2, {});
  for (auto& nulls : run.nulls) {
    NullTestResult result;
    result.z = {pick({1, 9, kNaN}), pick({1, 9, kNaN})};
    result.excess = {pick({.1, 1, 3, kNaN}), pick({.1, 1, 3, kNaN})};
    result.critical_z = 4;
    result.significant = true;
    result.beats = {result.z[0] >= 4, result.z[1] >= 4};
    if (engine() % 4 != 0) nulls.margin = result;
    if (engine() % 4 != 0) nulls.mass = result;
  }
  auto events = engine() % 15 == 0 ? run.at(10) : run.next();
  if (const auto due = run.tracker.verification_due()) {
    const auto verdict = static_cast<CircuitState>(static_cast<int>(CircuitState::kVerified) +
                                                   static_cast<int>(engine() % 4));
    for (auto& event : run.judge(verdict, due->heads)) events.push_back(std::move(event));
  }
  return events;
}

std::vector<std::string> lines(const std::vector<Event>& events) {
  std::vector<std::string> all;
  for (const auto& event : events) {
    std::string line = event.pattern + event.kind + std::to_string(event.step) + event.rule +
                       std::to_string(event.previous_probe_step);
    for (const auto& [name, value] : event.figures) line += name + std::to_string(value);
    for (const auto id : event.heads) line += std::to_string(id.head);
    all.push_back(line);
  }
  return all;
}

TEST(SavedState, ContinuesAsAnUnbrokenRunWhereverItIsCut) {
  size_t events_seen = 0;
  for (unsigned seed = 0; seed < 8; ++seed) {
    TrackedRun unbroken({.settle_probes = 1, .retry_probes = 2});
    std::mt19937 engine(seed);
    for (int probe = 0; probe < 60; ++probe) {
      TrackedRun resumed({.settle_probes = 1, .retry_probes = 2});
      resumed.tracker.load(unbroken.tracker.save());
      ASSERT_EQ(resumed.tracker.save(), unbroken.tracker.save());
      resumed.step = unbroken.step;
      std::mt19937 same = engine;
      const auto want = wander(unbroken, engine);
      EXPECT_EQ(lines(wander(resumed, same)), lines(want)) << "seed " << seed << " probe " << probe;
      ASSERT_EQ(resumed.tracker.save(), unbroken.tracker.save());
      events_seen += want.size();
    }
  }
  EXPECT_GT(events_seen, 200u);
}

std::string refusal(CircuitTracker tracker, const std::string& bytes) {
  const auto before = tracker.save();
  try {
    tracker.load(bytes);
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(tracker.save(), before);
    return error.what();
  }
  return "";
}

TEST(SavedState, OfAnotherSetUpIsRefusedByName) {
  const auto saved = TrackedRun().tracker.save();
  CircuitRules rules;
  rules.mass_floor = .2;
  EXPECT_THAT(refusal({test::two_patterns(), 256, rules}, saved),
              HasSubstr("mass_floor = 0.1, this run has 0.2"));
  EXPECT_THAT(refusal({test::two_patterns(), 64}, saved),
              HasSubstr("contexts = [256,256], this run has [64,64]"));
  auto patterns = test::two_patterns();
  patterns[1].name = "local";
  EXPECT_THAT(refusal({patterns, 256}, saved), HasSubstr("self"));
  EXPECT_EQ(refusal({test::two_patterns(), 256}, saved), "");
}

TEST(SavedState, DamagedIsRefused) {
  TrackedRun run;
  run.probes({60, 60});
  const auto saved = run.tracker.save();
  for (const auto& bytes : {std::string(), std::string("junk"), saved.substr(0, saved.size() / 2),
                            SpecialisationTracker().save()})
    EXPECT_THAT(refusal({test::two_patterns(), 256}, bytes), HasSubstr("not a saved circuits"));
  // Bytes flipped all over: refused or read, never a crash.
  for (size_t i = 0; i < saved.size(); i += 11) {
    auto flipped = saved;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x15);
    refusal({test::two_patterns(), 256}, flipped);
  }
}

TEST(SavedState, OfAnotherVersionIsRefusedByName) {
  auto saved = TrackedRun().tracker.save();
  const auto at = saved.find("version") + std::string("version").size();
  saved[at] = 9;
  EXPECT_THAT(refusal({test::two_patterns(), 256}, saved), HasSubstr("version 9"));
}

}  // namespace
}  // namespace headscope
