#pragma once

#include <hwy/targets.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headscope::testing {

#ifdef HEADSCOPE_EMULATED
/// The same tests over the emulated CUDA kernels: one target, which has no choice.
inline std::vector<int64_t> simd_targets() { return {0}; }
inline std::string target_name(int64_t) { return "CudaEmulated"; }
#else
/// The SIMD targets of this build that this CPU can run, the best first.
inline std::vector<int64_t> simd_targets() { return hwy::SupportedAndGeneratedTargets(); }
inline std::string target_name(int64_t target) { return hwy::TargetName(target); }
#endif

/// Lets the kernels use one SIMD target while it lives.
class WithSimdTarget {
 public:
  explicit WithSimdTarget(int64_t target) { choose(target); }
  ~WithSimdTarget() { choose(0); }
  WithSimdTarget(const WithSimdTarget&) = delete;
  WithSimdTarget& operator=(const WithSimdTarget&) = delete;

 private:
  static void choose(int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

}  // namespace headscope::testing
