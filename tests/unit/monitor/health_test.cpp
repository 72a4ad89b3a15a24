#include "csrc/monitor/edge/health.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace headscope {
namespace {

TEST(FaultGate, CatchesEverythingCountsByKindAndLogsTheFirst) {
  HealthCounters health;
  std::vector<std::string> lines;
  FaultGate gate([&](LogLevel, const std::string& line) { lines.push_back(line); }, health);
  EXPECT_FALSE(
      gate.guarded(Fault::kTap, [] { throw std::runtime_error("first line\nbacktrace"); }));
  EXPECT_FALSE(gate.guarded(Fault::kTap, [] { throw std::bad_alloc(); }));
  EXPECT_FALSE(gate.guarded(Fault::kProbe, [] { throw 42; }));
  EXPECT_TRUE(gate.guarded(Fault::kProbe, [] {}));
  EXPECT_EQ(health.read().errors.at("tap"), 2u);
  EXPECT_EQ(health.read().errors.at("probe"), 1u);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_NE(lines[0].find("first line"), std::string::npos);
  EXPECT_EQ(lines[0].find("backtrace"), std::string::npos);
}

TEST(FaultGate, AThrowingLogStaysInside) {
  HealthCounters health;
  FaultGate gate([](LogLevel, const std::string&) { throw std::runtime_error("log"); }, health);
  EXPECT_FALSE(gate.guarded(Fault::kSink, [] { throw std::runtime_error("x"); }));
  EXPECT_EQ(health.read().errors.at("sink"), 1u);
}

TEST(Backoff, DoublesToABoundAndStartsAgainAfterSuccess) {
  Backoff backoff;
  std::vector<int64_t> skipped;
  for (int failure = 0; failure < 9; ++failure) {
    EXPECT_TRUE(backoff.ready());
    backoff.failed();
    int64_t count = 0;
    Backoff probe = backoff;
    while (!probe.ready()) ++count;
    skipped.push_back(count);
    for (int64_t i = 0; i < count; ++i) EXPECT_FALSE(backoff.ready());
  }
  EXPECT_EQ(skipped, std::vector<int64_t>({1, 2, 4, 8, 16, 32, 64, 64, 64}));
  EXPECT_TRUE(backoff.ready());
  backoff.succeeded();
  backoff.failed();
  EXPECT_FALSE(backoff.ready());
  EXPECT_TRUE(backoff.ready());
}

}  // namespace
}  // namespace headscope
