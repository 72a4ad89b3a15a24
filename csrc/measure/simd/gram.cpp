#include "csrc/measure/simd/gram.h"

#include <algorithm>
#include <atomic>

// clang-format off: foreach_target.h compiles this file once for each target and comes first.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "csrc/measure/simd/gram.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "csrc/measure/simd/gram_amx.h"
#include "csrc/measure/simd/gram_vectors-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace headscope::simd::HWY_NAMESPACE {

bool is_avx512() { return HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3; }

void add_gram_f32(const HeadTokens& z, const float* shift, GramShare share, float* block,
                  float* gram, float* sum) {
#if HWY_TARGET == HWY_AVX3
  if (takes_token_pairs(z, shift)) return add_tokens<TokenPairs>(z, shift, share, block, gram, sum);
#endif
  add_tokens<Tokens>(z, shift, share, block, gram, sum);
}

void add_gram_f64(const HeadTokens& z, const double* shift, GramShare share, double* block,
                  double* gram, double* sum) {
  add_tokens<Tokens>(z, shift, share, block, gram, sum);
}

}  // namespace headscope::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headscope::simd {

HWY_EXPORT(add_gram_f32);
HWY_EXPORT(add_gram_f64);
HWY_EXPORT(is_avx512);

namespace {
std::atomic<bool> pairs_are_allowed = true;
}

bool uses_avx512() { return HWY_DYNAMIC_DISPATCH(is_avx512)(); }

const char* token_pairs_missing() {
#if HWY_TARGETS & HWY_AVX3
  if (!__builtin_cpu_supports("avx512bf16")) return "the CPU has no AVX-512-BF16";
  return uses_avx512() ? nullptr : "AVX-512 is missing or was excluded";
#else
  return "this build has no code for AVX-512-BF16";
#endif
}

void allow_token_pairs_for_test(bool allowed) { pairs_are_allowed = allowed; }

bool takes_token_pairs(const HeadTokens& z, const float* shift) {
  return z.element == Element::kBF16 && pairs_are_allowed && token_pairs_missing() == nullptr &&
         std::all_of(shift, shift + z.width, [](float c) { return c == 0; });
}

int64_t gram_workspace_bytes(int64_t width, int64_t sum_bytes) {
  const int64_t bytes = block_tokens(width, sum_bytes) * padded_width(width) * sum_bytes;
  if (sum_bytes != sizeof(float)) return bytes;
  // Whichever kernel add_gram takes.
  return std::max(
      {bytes, amx_block_bytes(Element::kBF16, width), amx_block_bytes(Element::kF16, width)});
}

void add_gram(const HeadTokens& z, const float* shift, GramShare share, float* workspace,
              float* gram, float* sum) {
  if (add_gram_amx(z, shift, share, workspace, gram, sum)) return;
  HWY_DYNAMIC_DISPATCH(add_gram_f32)(z, shift, share, workspace, gram, sum);
}

void add_gram(const HeadTokens& z, const double* shift, GramShare share, double* workspace,
              double* gram, double* sum) {
  HWY_DYNAMIC_DISPATCH(add_gram_f64)(z, shift, share, workspace, gram, sum);
}

}  // namespace headscope::simd
#endif
