#include "csrc/measure/simd/gram_amx.h"

#ifdef HEADSCOPE_AMX
#include <asm/prctl.h>
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <atomic>

// clang-format off: foreach_target.h compiles this file once for each target and comes first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/measure/simd/gram_amx.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "csrc/measure/simd/gram_amx-inl.h"
// clang-format on

// Every CPU with AMX has AVX-512: one target is enough.
#if defined(HEADSCOPE_AMX) && HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

void add_gram_hardware(const HeadTokens& z, const float* shift, GramShare share, float* workspace,
                       float* gram, float* sum) {
  add_gram_tiles<HardwareTiles>(z, shift, share, workspace, gram, sum);
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif

#if HWY_ONCE
#if defined(HEADSCOPE_AMX) && (HWY_TARGETS & HWY_AVX3)
#define HEADSCOPE_AMX_KERNEL 1
#else
#define HEADSCOPE_AMX_KERNEL 0
#endif

namespace headscope::simd {
namespace {

std::atomic<bool> is_allowed = true;

#if HEADSCOPE_AMX_KERNEL
const char* find_missing() {
  constexpr unsigned kAmxBf16 = 1u << 22, kAmxTile = 1u << 24, kOsXsave = 1u << 27;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kAmxTile) == 0 || (d & kAmxBf16) == 0)
    return "the CPU has no AMX-TILE with AMX-BF16";
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & kOsXsave) == 0)
    return "the system does not say which registers it has enabled";
  unsigned enabled = 0, upper = 0;
  __asm__ volatile("xgetbv" : "=a"(enabled), "=d"(upper) : "c"(0));
  constexpr unsigned kTileConfig = 17, kTileData = 18;
  constexpr unsigned kBoth = 1u << kTileConfig | 1u << kTileData;
  if ((enabled & kBoth) != kBoth) return "the system has not enabled the tile registers";
  return nullptr;
}

/// Whether this process has been granted the tile registers; it keeps them then.
bool tiles_are_granted() {
  static std::atomic<bool> granted = false;
  if (granted.load(std::memory_order_relaxed)) return true;
  constexpr uint64_t kTileData = 1u << 18;
  uint64_t permitted = 0;
  if (syscall(SYS_arch_prctl, ARCH_GET_XCOMP_PERM, &permitted) != 0 || (permitted & kTileData) == 0)
    return false;
  granted.store(true, std::memory_order_relaxed);
  return true;
}
#endif

}  // namespace

const char* amx_missing() {
#if HEADSCOPE_AMX_KERNEL
  static const char* const missing = find_missing();
  if (missing != nullptr) return missing;
  if (!tiles_are_granted()) return "this process has not asked Linux for the tile registers";
  return uses_avx512() ? nullptr : "AVX-512 is missing or was excluded";
#else
  return "this build has no code for AMX";
#endif
}

void allow_amx_for_test(bool allowed) { is_allowed = allowed; }

bool add_gram_amx([[maybe_unused]] const HeadTokens& z, [[maybe_unused]] const float* shift,
                  [[maybe_unused]] GramShare share, [[maybe_unused]] float* workspace,
                  [[maybe_unused]] float* gram, [[maybe_unused]] float* sum) {
#if HEADSCOPE_AMX_KERNEL
  if (is_allowed && amx_block_bytes(z.element, z.width) > 0 && amx_missing() == nullptr) {
    N_AVX3::add_gram_hardware(z, shift, share, workspace, gram, sum);
    return true;
  }
#endif
  return false;
}

}  // namespace headscope::simd
#endif
