#include "csrc/measure/simd/gram.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>

#include "csrc/measure/cpu/element_of.h"
#include "csrc/measure/entry_points.h"

namespace headscope::cpu {
namespace {

using measure::OptionalTensor;

/// Parts that each head's matrix is split into: one where the heads keep all threads busy, since
/// every part packs the tokens again.
int64_t shares_of(int64_t heads, int64_t width) {
  const int64_t threads = at::get_num_threads();
  if (heads % threads == 0) return 1;
  const int64_t wanted = (2 * threads + heads - 1) / heads;
  return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(1, width / 16));
}

template <typename Sum>
void accumulate(at::Tensor& gram, at::Tensor& sum, const at::Tensor& z, const at::Tensor& shift,
                const OptionalTensor& keep) {
  const int64_t batch = z.size(0), heads = z.size(1), width = z.size(3);
  const int64_t shares = shares_of(heads, width);
  const Sum* shift_data = shift.const_data_ptr<Sum>();
  Sum* gram_data = gram.data_ptr<Sum>();
  Sum* sum_data = sum.data_ptr<Sum>();
  const bool* kept = keep ? keep->const_data_ptr<bool>() : nullptr;
  const char* data = static_cast<const char*>(z.const_data_ptr());
  at::parallel_for(0, heads * shares, 1, [&](int64_t first, int64_t last) {
    const auto workspace = hwy::AllocateAligned<Sum>(
        static_cast<size_t>(simd::gram_workspace_bytes(width, sizeof(Sum))) / sizeof(Sum));
    for (int64_t i = first; i < last; ++i) {
      const int64_t h = i / shares;
      for (int64_t b = 0; b < batch; ++b) {
        const simd::HeadTokens tokens = {
            .data = data + (b * z.stride(0) + h * z.stride(1)) * z.element_size(),
            .element = element_of(z),
            .tokens = z.size(2),
            .width = width,
            .token_stride = z.stride(2),
            .width_stride = z.stride(3),
            .keep = kept == nullptr ? nullptr : kept + b * keep->stride(0),
            .keep_stride = kept == nullptr ? 1 : keep->stride(1)};
        simd::add_gram(tokens, shift_data + h * width, {i % shares, shares}, workspace.get(),
                       gram_data + h * width * width, sum_data + h * width);
      }
    }
  });
  at::parallel_for(0, heads, 1, [&](int64_t first, int64_t last) {
    for (int64_t h = first; h < last; ++h) {
      Sum* g = gram_data + h * width * width;
      for (int64_t i = 0; i < width; ++i) {
        for (int64_t j = 0; j < i; ++j) g[i * width + j] = g[j * width + i];
      }
    }
  });
}

}  // namespace

void EntryPoints::accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count,
                                   const at::Tensor& z, const at::Tensor& shift,
                                   const OptionalTensor& keep) {
  if (z.numel() == 0) return;
  AT_DISPATCH_FLOATING_TYPES(gram.scalar_type(), "headscope::accumulate_gram_",
                             [&] { accumulate<scalar_t>(gram, sum, z, shift.contiguous(), keep); });
  count.data_ptr<int64_t>()[0] += keep ? keep->sum().item<int64_t>() : z.size(0) * z.size(2);
}

}  // namespace headscope::cpu
