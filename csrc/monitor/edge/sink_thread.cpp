#include "csrc/monitor/edge/sink_thread.h"

#include <chrono>
#include <iterator>
#include <utility>

#include "headscope/process.h"

namespace headscope {

// Owned by both threads: a thread that a hanging sink never gives back must not reach into a
// destroyed monitor.
struct SinkThread::Shared {
  std::vector<std::shared_ptr<Sink>> sinks;
  std::function<void(const Event&)> on_event;
  size_t capacity;
  std::shared_ptr<HealthCounters> health;
  std::shared_ptr<FaultGate> gate;

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::shared_ptr<const Snapshot>> queue;
  uint64_t delivered = 0;
  bool stopping = false;
  bool finished = false;

  void deliver(const std::shared_ptr<const Snapshot>& snapshot) {
    for (const auto& sink : sinks) {
      const Fault fault = sink->name() == "history" ? Fault::kHistory : Fault::kSink;
      gate->guarded(fault, [&] { sink->publish(snapshot); });
    }
    if (!on_event) return;
    for (const Event& event : snapshot->events)
      gate->guarded(Fault::kCallback, [&] { on_event(event); });
  }

  void run() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return stopping || !queue.empty(); });
      if (queue.empty()) break;
      const auto snapshot = queue.front();
      lock.unlock();
      deliver(snapshot);
      lock.lock();
      queue.pop_front();
      ++delivered;
      if (queue.empty()) changed.notify_all();
    }
    lock.unlock();
    for (const auto& sink : sinks) gate->guarded(Fault::kSink, [&] { sink->close(); });
    lock.lock();
    finished = true;
    changed.notify_all();
  }
};

SinkThread::SinkThread(std::vector<std::shared_ptr<Sink>> sinks,
                       std::function<void(const Event&)> on_event, size_t capacity,
                       std::shared_ptr<HealthCounters> health, std::shared_ptr<FaultGate> gate)
    : shared_(std::make_shared<Shared>()) {
  shared_->sinks = std::move(sinks);
  shared_->on_event = std::move(on_event);
  shared_->capacity = capacity;
  shared_->health = std::move(health);
  shared_->gate = std::move(gate);
  const SignalsBlocked blocked;
  thread_ = std::thread([shared = shared_] { shared->run(); });
}

SinkThread::~SinkThread() { close(1.0); }

void SinkThread::publish(Snapshot snapshot) {
  snapshot.events.insert(snapshot.events.begin(), std::make_move_iterator(carried_events_.begin()),
                         std::make_move_iterator(carried_events_.end()));
  snapshot.ablations.insert(snapshot.ablations.begin(),
                            std::make_move_iterator(carried_ablations_.begin()),
                            std::make_move_iterator(carried_ablations_.end()));
  carried_events_.clear();
  carried_ablations_.clear();
  {
    const std::scoped_lock lock(shared_->mutex);
    if (shared_->queue.size() < shared_->capacity && !shared_->stopping) {
      shared_->queue.push_back(std::make_shared<const Snapshot>(std::move(snapshot)));
      shared_->changed.notify_all();
      return;
    }
  }
  carried_events_ = std::move(snapshot.events);
  carried_ablations_ = std::move(snapshot.ablations);
  snapshot.heads.clear();
  last_ = std::move(snapshot);
  shared_->health->snapshots_dropped.fetch_add(1, std::memory_order_relaxed);
  shared_->gate->log(
      LogLevel::kWarning,
      "a sink is too slow: a snapshot was dropped (counted in headscope_snapshots_dropped_total)",
      "dropped");
}

void SinkThread::queue_carried() {
  if (carried_events_.empty() && carried_ablations_.empty()) return;
  Snapshot last = last_;
  last.heads.clear();
  last.events = std::exchange(carried_events_, {});
  last.ablations = std::exchange(carried_ablations_, {});
  shared_->queue.push_back(std::make_shared<const Snapshot>(std::move(last)));
}

void SinkThread::flush(double timeout_seconds) {
  if (!thread_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  if (hung_at_ == shared_->delivered + 1) return;
  queue_carried();
  shared_->changed.notify_all();
  const bool taken = shared_->changed.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                                               [this] { return shared_->queue.empty(); });
  hung_at_ = taken ? 0 : shared_->delivered + 1;
  lock.unlock();
  if (!taken)
    shared_->gate->log(LogLevel::kWarning,
                       "a sink lags behind the saved state: a run that is killed now may miss "
                       "readings of before it",
                       "lagging");
}

void SinkThread::close(double timeout_seconds) {
  if (!thread_.joinable()) return;
  bool finished = false;
  {
    std::unique_lock lock(shared_->mutex);
    queue_carried();
    shared_->stopping = true;
    shared_->changed.notify_all();
    finished = shared_->changed.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                                         [this] { return shared_->finished; });
  }
  if (finished) {
    thread_.join();
  } else {
    shared_->gate->report(Fault::kSink, "a sink did not finish in time and was left behind");
    thread_.detach();
  }
}

}  // namespace headscope
