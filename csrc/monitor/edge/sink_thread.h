#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "csrc/monitor/edge/health.h"
#include "headscope/sink.h"

namespace headscope {

/// Hands snapshots to the sinks on a thread of its own. A slow sink loses snapshots (counted),
/// never a step; the events and ablations of a lost snapshot travel with the next one.
class SinkThread {
 public:
  SinkThread(std::vector<std::shared_ptr<Sink>> sinks, std::function<void(const Event&)> on_event,
             size_t capacity, std::shared_ptr<HealthCounters> health,
             std::shared_ptr<FaultGate> gate);
  ~SinkThread();
  SinkThread(const SinkThread&) = delete;
  SinkThread& operator=(const SinkThread&) = delete;

  void publish(Snapshot snapshot);
  /// Waits until the sinks have taken what was published, at most `timeout_seconds`; not at all
  /// while they hang where they hung the last time.
  void flush(double timeout_seconds);
  /// Gives the sinks up to `timeout_seconds` to take what is queued and closes them. A sink that
  /// hangs is left behind with its thread. Idempotent.
  void close(double timeout_seconds);

 private:
  struct Shared;
  /// One beyond the bound: events are never lost to a slow sink, only readings are. With the lock
  /// held.
  void queue_carried();
  std::shared_ptr<Shared> shared_;
  uint64_t hung_at_ = 0;  ///< one more than were delivered when a flush gave up; 0: none did
  std::vector<Event> carried_events_;
  std::vector<AblationReport> carried_ablations_;
  /// The last dropped one, without its heads: what carried events travel with at the end.
  Snapshot last_;
  std::thread thread_;
};

}  // namespace headscope
