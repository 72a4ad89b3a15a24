#pragma once

#include <sys/resource.h>

#include <csignal>

namespace headscope::testing {

/// While it lives, no file of this process may grow beyond `bytes`: a full disk, without one.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes = 1) {
    signal_before_ = std::signal(SIGXFSZ, SIG_IGN);  // a failed write, instead of a dead process
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit small{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, signal_before_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
  void (*signal_before_)(int) = SIG_DFL;
};

}  // namespace headscope::testing
