#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <limits>

#include "csrc/measure/cuda/device.h"
#include "csrc/measure/entry_points.h"

namespace headscope::cuda {
namespace {

at::Tensor launch(const at::Tensor& matrices) {
  const int64_t n = matrices.size(-1);
  at::Tensor values = at::empty({matrices.size(0), n}, matrices.options().dtype(at::kDouble));
  kernels::EigenvalueGroup group;
  group.matrices = matrices.const_data_ptr<float>();
  group.matrix_stride = n * n;
  group.row_stride = n;
  group.count = static_cast<int>(matrices.size(0));
  kernels::EigenvalueOutputs out;
  out.eigenvalues = values.data_ptr<double>();
  check(kernels::launch_symmetric_eigenvalues(&group, 1, static_cast<int>(n), out,
                                              current_stream(matrices)),
        "symmetric_eigenvalues");
  return values;
}

/// The solver may not end on NaN or Inf: such matrices are swapped for zeros and their result for
/// NaN. Scaled by the largest entry, which keeps 1e300 and denormals inside what it can square.
at::Tensor compose(const at::Tensor& matrices) {
  const at::Tensor lower = at::tril(matrices.to(at::kDouble));
  const at::Tensor finite = lower.isfinite().flatten(1).all(1);
  const at::Tensor safe = at::where(finite.view({-1, 1, 1}), lower, at::zeros({}, lower.options()));
  const at::Tensor largest = safe.abs().flatten(1).amax(1);
  const at::Tensor scale = at::where(largest > 0, largest, at::ones({}, largest.options()));
  at::Tensor scaled = safe / scale.view({-1, 1, 1});
  return (solve(scaled) * scale.view({-1, 1}))
      .masked_fill(finite.logical_not().view({-1, 1}), std::numeric_limits<double>::quiet_NaN());
}

}  // namespace

at::Tensor EntryPoints::symmetric_eigenvalues(const at::Tensor& matrices) {
  const int64_t n = matrices.size(-1);
  const auto out_sizes = matrices.sizes().slice(0, matrices.dim() - 1);
  if (matrices.numel() == 0) return at::empty(out_sizes, matrices.options().dtype(at::kDouble));
  const c10::DeviceGuard guard(matrices.device());
  const at::Tensor flat = matrices.reshape({-1, n, n}).contiguous();
  const bool fits = flat.scalar_type() == at::kFloat && n <= kernels::kMaxEigenvalueRows &&
                    flat.size(0) <= std::numeric_limits<int>::max();
  return (fits ? launch(flat) : compose(flat)).reshape(out_sizes);
}

}  // namespace headscope::cuda
