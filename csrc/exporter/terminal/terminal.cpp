#include "csrc/exporter/terminal/terminal.h"

#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>

namespace headscope::exporter {
namespace {

constexpr int kPatienceMs = 100;
constexpr int kUsualColumns = 80;

/// Keeps a SIGPIPE that this thread causes away from the process, without touching the host's
/// disposition.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeGuard() {
    // The host's own pending signal stays; ours is taken before it can be delivered.
    if (!was_pending_) {
      const timespec at_once{0, 0};
      while (sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
  bool was_pending_;
};

bool wait_for_room(int descriptor) {
  pollfd room{descriptor, POLLOUT, 0};
  int ready;
  do {
    ready = poll(&room, 1, kPatienceMs);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

}  // namespace

bool Terminal::can_rewrite() const {
  const char* kind = std::getenv("TERM");
  const bool dumb = kind != nullptr && std::string_view(kind) == "dumb";
  return isatty(descriptor_) == 1 && !dumb;
}

int Terminal::columns() const {
  winsize size{};
  const bool known = ioctl(descriptor_, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

void Terminal::write(std::string_view text) const {
  const SigpipeGuard guard;
  while (!text.empty()) {
    if (!wait_for_room(descriptor_)) return;
    // A pipe that is ready takes PIPE_BUF bytes without blocking.
    const ssize_t written =
        ::write(descriptor_, text.data(), std::min<size_t>(text.size(), PIPE_BUF));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

}  // namespace headscope::exporter
