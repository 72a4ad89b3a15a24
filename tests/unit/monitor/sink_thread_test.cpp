#include "csrc/monitor/edge/sink_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <stdexcept>

namespace headscope {
namespace {

/// A sink whose publish waits for a permit and may throw.
class ScriptedSink : public Sink {
 public:
  std::string name() const override { return "scripted"; }
  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    if (gate.valid()) gate.wait();
    if (throwing) throw std::runtime_error("disk full");
    const std::scoped_lock lock(mutex);
    seen.push_back(snapshot);
  }
  std::shared_future<void> gate;
  std::atomic<bool> throwing{false};
  std::mutex mutex;
  std::vector<std::shared_ptr<const Snapshot>> seen;
};

struct Fixture {
  std::shared_ptr<HealthCounters> health = std::make_shared<HealthCounters>();
  std::vector<std::string> lines;
  std::shared_ptr<FaultGate> gate = std::make_shared<FaultGate>(
      [this](LogLevel, const std::string& line) { lines.push_back(line); }, *health);
  std::shared_ptr<ScriptedSink> sink = std::make_shared<ScriptedSink>();
};

Snapshot snapshot_at(int64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  Event event;
  event.step = step;
  snapshot.events.push_back(event);
  return snapshot;
}

TEST(SinkThread, DeliversInOrderAndFlushesOnClose) {
  Fixture f;
  SinkThread thread({f.sink}, {}, 64, f.health, f.gate);
  for (int64_t step = 0; step < 40; ++step) thread.publish(snapshot_at(step));
  thread.close(5);
  ASSERT_EQ(f.sink->seen.size(), 40u);
  for (int64_t step = 0; step < 40; ++step)
    EXPECT_EQ(f.sink->seen[static_cast<size_t>(step)]->step, step);
}

TEST(SinkThread, FlushWaitsForWhatWasPublished) {
  Fixture f;
  SinkThread thread({f.sink}, {}, 64, f.health, f.gate);
  for (int64_t step = 0; step < 40; ++step) {
    thread.publish(snapshot_at(step));
    thread.flush(5);
    const std::scoped_lock lock(f.sink->mutex);
    ASSERT_EQ(f.sink->seen.size(), static_cast<size_t>(step) + 1);
  }
  EXPECT_TRUE(f.lines.empty());
}

TEST(SinkThread, FlushWaitsForAHangingSinkOnce) {
  Fixture f;
  std::promise<void> permit;
  f.sink->gate = permit.get_future().share();
  SinkThread thread({f.sink}, {}, 64, f.health, f.gate);
  thread.publish(snapshot_at(0));
  thread.flush(0.05);
  const auto start = std::chrono::steady_clock::now();
  thread.flush(60);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
  EXPECT_EQ(f.lines.size(), 1u);
  permit.set_value();
  thread.close(5);
  EXPECT_EQ(f.sink->seen.size(), 1u);
}

TEST(SinkThread, FlushGivesTheEventsOfADroppedSnapshotToo) {
  Fixture f;
  std::promise<void> permit;
  f.sink->gate = permit.get_future().share();
  SinkThread thread({f.sink}, {}, 1, f.health, f.gate);
  for (int64_t step = 0; step < 3; ++step) thread.publish(snapshot_at(step));
  permit.set_value();
  thread.flush(5);
  size_t events = 0;
  for (const auto& snapshot : f.sink->seen) events += snapshot->events.size();
  EXPECT_EQ(events, 3u);
}

TEST(SinkThread, SlowSinkLosesSnapshotsButNoEvents) {
  Fixture f;
  std::promise<void> permit;
  f.sink->gate = permit.get_future().share();
  SinkThread thread({f.sink}, {}, 2, f.health, f.gate);
  for (int64_t step = 0; step < 10; ++step) thread.publish(snapshot_at(step));
  EXPECT_GE(f.health->snapshots_dropped.load(), 7u);
  permit.set_value();
  // Once the queue has room the carried events travel with the next snapshot.
  while (true) {
    const std::scoped_lock lock(f.sink->mutex);
    if (f.sink->seen.size() >= 2) break;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  thread.publish(snapshot_at(10));
  thread.close(5);
  std::vector<int64_t> steps;
  for (const auto& snapshot : f.sink->seen) {
    for (const Event& event : snapshot->events) steps.push_back(event.step);
  }
  EXPECT_EQ(steps, std::vector<int64_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
}

TEST(SinkThread, EventsOfADroppedSnapshotArriveAtCloseAtTheLatest) {
  Fixture f;
  std::promise<void> permit;
  f.sink->gate = permit.get_future().share();
  SinkThread thread({f.sink}, {}, 1, f.health, f.gate);
  for (int64_t step = 0; step < 6; ++step) thread.publish(snapshot_at(step));
  EXPECT_GE(f.health->snapshots_dropped.load(), 4u);
  permit.set_value();
  thread.close(5);
  std::vector<int64_t> steps;
  for (const auto& snapshot : f.sink->seen) {
    for (const Event& event : snapshot->events) steps.push_back(event.step);
  }
  EXPECT_EQ(steps, std::vector<int64_t>({0, 1, 2, 3, 4, 5}));
}

TEST(SinkThread, AThrowingSinkIsCountedLoggedOnceAndTriedAgain) {
  Fixture f;
  f.sink->throwing = true;
  {
    SinkThread thread({f.sink}, {}, 64, f.health, f.gate);
    for (int64_t step = 0; step < 5; ++step) thread.publish(snapshot_at(step));
    thread.close(5);
  }
  EXPECT_EQ(f.health->read().errors.at("sink"), 5u);
  EXPECT_EQ(f.lines.size(), 1u);
  EXPECT_NE(f.lines.at(0).find("disk full"), std::string::npos);
}

TEST(SinkThread, AThrowingCallbackIsItsOwnKind) {
  Fixture f;
  SinkThread thread(
      {f.sink}, [](const Event&) { throw 1; }, 64, f.health, f.gate);
  thread.publish(snapshot_at(0));
  thread.close(5);
  EXPECT_EQ(f.health->read().errors.at("callback"), 1u);
  EXPECT_EQ(f.sink->seen.size(), 1u);
}

TEST(SinkThread, AHangingSinkIsLeftBehind) {
  Fixture f;
  auto permit = std::make_shared<std::promise<void>>();
  f.sink->gate = permit->get_future().share();
  SinkThread thread({f.sink}, {}, 4, f.health, f.gate);
  thread.publish(snapshot_at(0));
  thread.close(0.05);
  EXPECT_EQ(f.health->read().errors.at("sink"), 1u);
  permit->set_value();  // the abandoned thread ends on its own
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
}

}  // namespace
}  // namespace headscope
