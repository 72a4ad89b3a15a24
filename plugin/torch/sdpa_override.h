#pragma once

#include <memory>
#include <string>

#include "plugin/torch/seen_call.h"

namespace headscope {

/// The run-time override of aten::scaled_dot_product_attention at AutogradCPU (training) and CPU
/// (InferenceMode): calls the original and shows its arguments and its result to the observers of
/// the calling thread. Removed whole when the last holder lets go.
class SdpaOverride {
 public:
  /// Throws std::invalid_argument when another library has overridden the operator already.
  static std::shared_ptr<SdpaOverride> acquire();
  ~SdpaOverride();
  SdpaOverride(const SdpaOverride&) = delete;
  SdpaOverride& operator=(const SdpaOverride&) = delete;

 private:
  SdpaOverride();
  struct Kernels;
  std::unique_ptr<Kernels> kernels_;
};

/// True while this thread runs the operator's own arithmetic.
bool inside_sdpa();

/// Adds or removes an observer of this thread's calls.
void observe_sdpa(CallObserver* observer);
void stop_observing_sdpa(CallObserver* observer);

}  // namespace headscope
