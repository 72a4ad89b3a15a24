#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace headscope::testing {

/// A forked process that runs `body` and ends: status 0 when it returned true, 1 when not, 2 when
/// it threw. Killed with the object.
class ChildProcess {
 public:
  template <typename Body>
  explicit ChildProcess(const Body& body) : pid_(fork()) {
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    int status = 2;
    try {
      status = body() ? 0 : 1;
    } catch (...) {
    }
    _exit(status);
  }
  ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess() {
    if (pid_ > 0) kill();
  }

  pid_t pid() const { return pid_; }

  /// Ends it at once, as the out-of-memory killer does.
  void kill() {
    ::kill(pid_, SIGKILL);
    waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

  /// The wait status; kHangs (and killed) when it has not ended after `limit`.
  static constexpr int kHangs = -1;
  int wait(std::chrono::seconds limit = std::chrono::seconds(20)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (waitpid(pid_, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > end) {
        kill();
        return kHangs;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

/// Numbers from one process to another, in order.
class NumberPipe {
 public:
  NumberPipe() {
    if (pipe(ends_) != 0) throw std::runtime_error("no pipe");
  }
  ~NumberPipe() {
    close(ends_[0]);
    close(ends_[1]);
  }
  NumberPipe(const NumberPipe&) = delete;
  NumberPipe& operator=(const NumberPipe&) = delete;

  void send(int64_t number) const {
    if (write(ends_[1], &number, sizeof number) != sizeof number) throw std::runtime_error("pipe");
  }
  int64_t receive() const {
    int64_t number = 0;
    if (read(ends_[0], &number, sizeof number) != sizeof number) throw std::runtime_error("pipe");
    return number;
  }
  /// The last number that was sent, once no process holds the other end.
  std::optional<int64_t> last_of_ended() {
    close(std::exchange(ends_[1], -1));
    std::optional<int64_t> last;
    for (int64_t number = 0; read(ends_[0], &number, sizeof number) == sizeof number;) {
      last = number;
    }
    return last;
  }

 private:
  int ends_[2];
};

}  // namespace headscope::testing
