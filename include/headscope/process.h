#pragma once

#include <pthread.h>
#include <signal.h>

#include <functional>
#include <mutex>
#include <utility>

#include "headscope/export.h"

namespace headscope {

/// Keeps a callback known to fork(); see on_fork_child.
class ForkRegistration {
 public:
  HEADSCOPE_API explicit ForkRegistration(std::function<void()> callback);
  HEADSCOPE_API ~ForkRegistration();
  ForkRegistration(const ForkRegistration&) = delete;
  ForkRegistration& operator=(const ForkRegistration&) = delete;

 private:
  friend struct ForkRegistry;
  const std::function<void()> callback_;
  ForkRegistration* next_ = nullptr;
};

/// Runs `callback` in each child that fork() makes of this process, before fork() returns there,
/// until the registration is destroyed. The child has one thread, and what other threads had locked
/// stays locked: the callback may do only what is async-signal-safe (signal-safety(7)), and must
/// not throw. Thread-safe; costs a fork one uncontended lock.
[[nodiscard]] inline ForkRegistration on_fork_child(std::function<void()> callback) {
  return ForkRegistration(std::move(callback));
}

/// While the lock is held, fork() in other threads waits, so that a child sees all of what is done
/// meanwhile or nothing. For moments only; the holder must not fork and makes no registration.
[[nodiscard]] HEADSCOPE_API std::unique_lock<std::mutex> hold_forks();

/// Blocks, in this thread and in the threads that it starts meanwhile, every signal that may be
/// blocked: the host's handlers go on running on the host's threads, and a broken connection cannot
/// end the process. What was set before comes back with the end of the scope.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t set;
    sigfillset(&set);
    for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&set, fault);
    }
    pthread_sigmask(SIG_BLOCK, &set, &before_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

}  // namespace headscope
