#include "csrc/monitor/host_guard.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include <mutex>

namespace headscope {

QuietScope::QuietScope() : no_autocast_(c10::autocast_dispatch_keyset) {}

HostGuard::HostGuard()
    : autocast_cache_(at::autocast::is_autocast_cache_enabled()),
      autocast_enabled_(at::autocast::is_autocast_enabled(at::kCPU)),
      autocast_type_(at::autocast::get_autocast_dtype(at::kCPU)) {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::scoped_lock lock(generator.mutex());
  generators_.push_back({generator, generator.get_state()});
  // Weights cast under no_grad must not be found in the cache by the training forward: it would
  // lose their gradient.
  at::autocast::set_autocast_cache_enabled(false);
}

HostGuard::~HostGuard() {
  for (auto& saved : generators_) {
    const std::scoped_lock lock(saved.generator.mutex());
    saved.generator.set_state(saved.state);
  }
  at::autocast::set_autocast_enabled(at::kCPU, autocast_enabled_);
  at::autocast::set_autocast_dtype(at::kCPU, autocast_type_);
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
}

}  // namespace headscope
