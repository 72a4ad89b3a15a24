#include "headscope/process.h"

#include <pthread.h>

#include <utility>

namespace headscope {

struct ForkRegistry {
  std::mutex mutex;
  ForkRegistration* first = nullptr;
  std::once_flag installed;

  void install();

  void add(ForkRegistration* registration) {
    const std::lock_guard lock(mutex);
    registration->next_ = std::exchange(first, registration);
  }

  void remove(const ForkRegistration* registration) {
    const std::lock_guard lock(mutex);
    ForkRegistration** link = &first;
    while (*link != registration) link = &(*link)->next_;
    *link = registration->next_;
  }

  void run_callbacks() const {
    for (const ForkRegistration* one = first; one != nullptr; one = one->next_) one->callback_();
  }
};

namespace {

constinit ForkRegistry registry;  // no order of initialisation, no lock on first use

}  // namespace

// The list is whole at every fork, and the child's copy of the lock is free.
void ForkRegistry::install() {
  pthread_atfork([] { registry.mutex.lock(); }, [] { registry.mutex.unlock(); },
                 [] {
                   registry.mutex.unlock();
                   registry.run_callbacks();
                 });
}

ForkRegistration::ForkRegistration(std::function<void()> callback)
    : callback_(std::move(callback)) {
  std::call_once(registry.installed, [] { registry.install(); });
  registry.add(this);
}

ForkRegistration::~ForkRegistration() { registry.remove(this); }

std::unique_lock<std::mutex> hold_forks() { return std::unique_lock(registry.mutex); }

}  // namespace headscope
