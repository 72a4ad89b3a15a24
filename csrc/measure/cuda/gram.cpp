#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <limits>

#include "csrc/measure/cuda/device.h"
#include "csrc/measure/cuda/element_type.h"
#include "csrc/measure/entry_points.h"

namespace headscope::cuda {
namespace {

using measure::OptionalTensor;

bool gram_fits_kernel(const at::Tensor& gram, const at::Tensor& z) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return gram.scalar_type() == at::kFloat && has_kernel(z.scalar_type()) &&
         z.size(3) <= kernels::kMaxGramWidth && z.size(1) <= kMost && z.size(0) * z.size(2) < kMost;
}

void launch(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
            const at::Tensor& shift, const OptionalTensor& keep) {
  kernels::GramProblem problem;
  problem.z = z.const_data_ptr();
  problem.z_batch_stride = z.stride(0);
  problem.z_head_stride = z.stride(1);
  problem.z_token_stride = z.stride(2);
  problem.z_width_stride = z.stride(3);
  if (keep) {
    problem.keep = keep->const_data_ptr<bool>();
    problem.keep_batch_stride = keep->stride(0);
    problem.keep_token_stride = keep->stride(1);
  }
  problem.shift = shift.const_data_ptr<float>();
  problem.gram = gram.data_ptr<float>();
  problem.sum = sum.data_ptr<float>();
  problem.count = count.data_ptr<int64_t>();
  problem.batch = static_cast<int>(z.size(0));
  problem.heads = static_cast<int>(z.size(1));
  problem.tokens = static_cast<int>(z.size(2));
  const int width = static_cast<int>(z.size(3));
  const size_t bytes = kernels::gram_workspace_bytes(&problem, 1, width);
  const at::Tensor workspace =
      at::empty({static_cast<int64_t>(bytes)}, z.options().dtype(at::kByte));
  check(kernels::launch_gram(&problem, 1, width, element_type(z.scalar_type()),
                             workspace.data_ptr(), bytes, current_stream(z)),
        "accumulate_gram_");
}

/// Sequence by sequence, so that the copy in the sums' dtype stays a sequence's.
void compose(at::Tensor& gram, at::Tensor& sum, at::Tensor& count, const at::Tensor& z,
             const at::Tensor& shift, const OptionalTensor& keep) {
  for (int64_t b = 0; b < z.size(0); ++b) {
    at::Tensor x = z.select(0, b).to(gram.scalar_type()) - shift.unsqueeze(1);
    if (keep) {
      // Padding may hold anything, NaN included.
      x = at::where(keep->select(0, b).view({1, -1, 1}), x, at::zeros({}, x.options()));
    }
    add_products(gram, x.contiguous());
    sum.add_(x.sum(1));
  }
  // The library's products are symmetric but for rounding.
  gram.copy_((gram + gram.transpose(1, 2)) * 0.5);
  keep ? count.add_(keep->sum()) : count.add_(z.size(0) * z.size(2));
}

}  // namespace

void EntryPoints::accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count,
                                   const at::Tensor& z, const at::Tensor& shift,
                                   const OptionalTensor& keep) {
  if (z.numel() == 0) return;
  const c10::DeviceGuard guard(z.device());
  const at::Tensor centre = shift.contiguous();
  gram_fits_kernel(gram, z) ? launch(gram, sum, count, z, centre, keep)
                            : compose(gram, sum, count, z, centre, keep);
}

}  // namespace headscope::cuda
