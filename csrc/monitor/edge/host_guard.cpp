#include "csrc/monitor/edge/host_guard.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <mutex>

namespace headscope {

QuietScope::QuietScope() : no_autocast_(c10::autocast_dispatch_keyset) {}

HostGuard::HostGuard() : autocast_cache_(at::autocast::is_autocast_cache_enabled()) {
  std::vector<at::Device> devices = {at::kCPU};
  const auto& cuda = at::detail::getCUDAHooks();
  // Devices without a context have drawn nothing, and asking them would make one.
  for (c10::DeviceIndex i = 0; cuda.hasCUDA() && i < cuda.getNumGPUs(); ++i) {
    if (cuda.hasPrimaryContext(i)) devices.emplace_back(at::kCUDA, i);
  }
  for (const at::Device device : devices) {
    at::Generator generator = at::globalContext().defaultGenerator(device);
    const std::scoped_lock lock(generator.mutex());
    generators_.push_back({generator, generator.get_state()});
  }
  for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
    autocast_.push_back({device, at::autocast::is_autocast_enabled(device),
                         at::autocast::get_autocast_dtype(device)});
  }
  // Weights cast under no_grad must not be found in the cache by the training forward: it would
  // lose their gradient.
  at::autocast::set_autocast_cache_enabled(false);
}

HostGuard::~HostGuard() {
  for (auto& saved : generators_) {
    const std::scoped_lock lock(saved.generator.mutex());
    saved.generator.set_state(saved.state);
  }
  for (const SavedAutocast& saved : autocast_) {
    at::autocast::set_autocast_enabled(saved.device, saved.enabled);
    at::autocast::set_autocast_dtype(saved.device, saved.type);
  }
  at::autocast::set_autocast_cache_enabled(autocast_cache_);
}

}  // namespace headscope
