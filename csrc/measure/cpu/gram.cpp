#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "csrc/measure/cpu/kernels.h"

namespace headscope::cpu {
namespace {

// Tokens per block. Each block is summed on its own and then added to G: the rounding error grows
// with the number of blocks, not of tokens.
constexpr int64_t kBlock = 64;

/// Packs up to kBlock kept tokens of one (b, h) about the shift into block [n, D]; returns n.
template <typename In, typename Sum>
int64_t pack_block(const In* z, int64_t token_stride, int64_t width_stride, int64_t begin,
                   int64_t end, int64_t width, const bool* keep, int64_t keep_stride,
                   const Sum* shift, Sum* block) {
  int64_t packed = 0;
  for (int64_t t = begin; t < end; ++t) {
    if (keep != nullptr && !keep[t * keep_stride]) continue;
    const In* source = z + t * token_stride;
    Sum* target = block + packed * width;
    for (int64_t i = 0; i < width; ++i)
      target[i] = static_cast<Sum>(source[i * width_stride]) - shift[i];
    ++packed;
  }
  return packed;
}

/// partial[i, j] = sum_n block[n, i] block[n, j] for j >= i, and their column sums.
template <typename Sum>
void multiply_block(const Sum* block, int64_t rows, int64_t width, Sum* partial, Sum* partial_sum) {
  std::fill(partial, partial + width * width, Sum{0});
  std::fill(partial_sum, partial_sum + width, Sum{0});
  for (int64_t n = 0; n < rows; ++n) {
    const Sum* x = block + n * width;
    for (int64_t i = 0; i < width; ++i) {
      const Sum left = x[i];
      Sum* out = partial + i * width;
      for (int64_t j = i; j < width; ++j) out[j] += left * x[j];
    }
    for (int64_t i = 0; i < width; ++i) partial_sum[i] += x[i];
  }
}

template <typename In, typename Sum>
void accumulate(at::Tensor& gram, at::Tensor& sum, const at::Tensor& z, const at::Tensor& shift,
                const bool* keep, at::IntArrayRef keep_strides) {
  const int64_t batch = z.size(0), heads = z.size(1), tokens = z.size(2), width = z.size(3);
  const In* z_data = z.const_data_ptr<In>();
  const Sum* shift_data = shift.const_data_ptr<Sum>();
  Sum* gram_data = gram.data_ptr<Sum>();
  Sum* sum_data = sum.data_ptr<Sum>();
  at::parallel_for(0, heads, 1, [&](int64_t first, int64_t last) {
    std::vector<Sum> block(static_cast<size_t>(kBlock * width)),
        partial(static_cast<size_t>(width * width)), partial_sum(static_cast<size_t>(width));
    for (int64_t h = first; h < last; ++h) {
      Sum* g = gram_data + h * width * width;
      Sum* s = sum_data + h * width;
      for (int64_t b = 0; b < batch; ++b) {
        const In* head = z_data + b * z.stride(0) + h * z.stride(1);
        const bool* kept = keep == nullptr ? nullptr : keep + b * keep_strides[0];
        for (int64_t begin = 0; begin < tokens; begin += kBlock) {
          const int64_t rows = pack_block(
              head, z.stride(2), z.stride(3), begin, std::min(begin + kBlock, tokens), width, kept,
              keep == nullptr ? 0 : keep_strides[1], shift_data + h * width, block.data());
          multiply_block(block.data(), rows, width, partial.data(), partial_sum.data());
          for (int64_t i = 0; i < width; ++i) {
            for (int64_t j = i; j < width; ++j)
              g[i * width + j] += partial[static_cast<size_t>(i * width + j)];
            s[i] += partial_sum[static_cast<size_t>(i)];
          }
        }
      }
      for (int64_t i = 0; i < width; ++i) {
        for (int64_t j = 0; j < i; ++j) g[i * width + j] = g[j * width + i];
      }
    }
  });
}

}  // namespace

void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
                      const at::Tensor& shift, const OptionalTensor& keep) {
  if (z.numel() == 0) return;
  const at::Tensor centre = shift.contiguous();
  const bool* keep_data = keep ? keep->const_data_ptr<bool>() : nullptr;
  const at::IntArrayRef keep_strides = keep ? keep->strides() : at::IntArrayRef();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::kHalf, at::kBFloat16, z.scalar_type(), "headscope::accumulate_gram_", [&] {
        if (gram.scalar_type() == at::kDouble) {
          accumulate<scalar_t, double>(gram, sum, z, centre, keep_data, keep_strides);
        } else {
          accumulate<scalar_t, float>(gram, sum, z, centre, keep_data, keep_strides);
        }
      });
  count.data_ptr<int64_t>()[0] += keep ? keep->sum().item<int64_t>() : z.size(0) * z.size(2);
}

}  // namespace headscope::cpu
