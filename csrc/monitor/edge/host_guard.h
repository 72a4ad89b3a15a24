#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <optional>
#include <vector>

namespace headscope {

/// What the monitor's own arithmetic runs under: no autograd, no autocast (which would round sums
/// to bf16).
class QuietScope {
 public:
  QuietScope();

 private:
  at::NoGradGuard no_grad_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

/// What the user's forward runs under during a probe: no grad; the default generators, the grad
/// mode and autocast's state and cache are put back as they were.
class HostGuard {
 public:
  HostGuard();
  ~HostGuard();
  HostGuard(const HostGuard&) = delete;
  HostGuard& operator=(const HostGuard&) = delete;

 private:
  struct SavedGenerator {
    at::Generator generator;
    at::Tensor state;
  };
  struct SavedAutocast {
    at::DeviceType device;
    bool enabled;
    at::ScalarType type;
  };
  std::vector<SavedGenerator> generators_;  // of the CPU and of every GPU in use
  std::vector<SavedAutocast> autocast_;
  bool autocast_cache_;
  at::NoGradGuard no_grad_;
};

}  // namespace headscope
