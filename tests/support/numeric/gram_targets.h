#pragma once

#if defined(__x86_64__) && defined(__linux__)
#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/numeric/simd_targets.h"

#ifndef HEADSCOPE_EMULATED
#include "csrc/measure/simd/gram_amx.h"
#endif

namespace headscope::testing {

#ifdef HEADSCOPE_EMULATED
/// Tiles have no part in the CUDA kernels.
using WithGramTarget = WithSimdTarget;
inline std::vector<int64_t> tile_targets() { return {}; }
inline const char* missing_for(int64_t) { return nullptr; }
inline std::string gram_target_name(int64_t target) { return target_name(target); }
#else
/// Beside the SIMD targets of Highway, whose bits are positive.
inline constexpr int64_t kAmxTarget = -1;
inline std::vector<int64_t> tile_targets() { return {kAmxTarget}; }

inline std::string gram_target_name(int64_t target) {
  return target == kAmxTarget ? "AMX" : target_name(target);
}

/// Asks Linux for the tile registers, as a host does that computes in bf16.
inline void ask_for_tiles() {
#if defined(__x86_64__) && defined(ARCH_REQ_XCOMP_PERM)
  constexpr long kTileData = 18;
  syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM,
          kTileData);  // amx_missing() tells whether it was granted
#endif
}

/// What a target lacks on this machine, nullptr if it can be used.
inline const char* missing_for(int64_t target) {
  if (target != kAmxTarget) return nullptr;
  ask_for_tiles();
  return simd::amx_missing();
}

/// Lets the Gram kernel use one implementation while it lives.
class WithGramTarget {
 public:
  explicit WithGramTarget(int64_t target) : simd_(target == kAmxTarget ? 0 : target) {
    simd::allow_amx_for_test(target == kAmxTarget);
  }
  ~WithGramTarget() { simd::allow_amx_for_test(true); }
  WithGramTarget(const WithGramTarget&) = delete;
  WithGramTarget& operator=(const WithGramTarget&) = delete;

 private:
  WithSimdTarget simd_;
};
#endif

}  // namespace headscope::testing
