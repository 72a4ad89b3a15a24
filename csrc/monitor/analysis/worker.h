#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace headscope {

/// One thread that runs one job at a time. The training thread hands a job over only after drain(),
/// so there is never more than one and results are taken in order.
class Worker {
 public:
  Worker();
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// The job must not throw. Waits for an earlier job.
  void submit(std::function<void()> job);
  /// Waits until no job is left.
  void drain();
  /// True when drain() would not wait.
  bool idle();

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> job_;
  bool busy_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace headscope
