#include "csrc/monitor/analysis/worker.h"

#include "headscope/process.h"

namespace headscope {

Worker::Worker() {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

Worker::~Worker() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Worker::submit(std::function<void()> job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
  job_ = std::move(job);
  busy_ = true;
  lock.unlock();
  changed_.notify_all();
}

void Worker::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !busy_; });
}

bool Worker::idle() {
  const std::scoped_lock lock(mutex_);
  return !busy_;
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return busy_ || stopping_; });
    if (!busy_) return;
    const std::function<void()> job = std::exchange(job_, nullptr);
    lock.unlock();
    job();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace headscope
