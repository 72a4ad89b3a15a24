#include <ATen/ATen.h>

#include <limits>

#include "csrc/measure/cpu/kernels.h"

namespace headscope::cpu {

at::Tensor symmetric_eigenvalues(const at::Tensor& matrices) {
  const int64_t n = matrices.size(-1);
  const auto out_sizes = matrices.sizes().slice(0, matrices.dim() - 1);
  if (matrices.numel() == 0) return at::empty(out_sizes, matrices.options().dtype(at::kDouble));
  // LAPACK raises on NaN and may not end on Inf: such matrices are swapped for zeros and their
  // result for NaN. Scaling by the largest entry keeps 1e300 and denormals inside what the solver
  // can square.
  at::Tensor work = matrices.to(at::kDouble).reshape({-1, n, n});
  const at::Tensor finite = work.isfinite().flatten(1).all(1);
  work = at::where(finite.view({-1, 1, 1}), work, at::zeros({}, work.options()));
  const at::Tensor largest = work.abs().flatten(1).amax(1);
  const at::Tensor scale = at::where(largest > 0, largest, at::ones({}, work.options()));
  at::Tensor values = at::linalg_eigvalsh(work / scale.view({-1, 1, 1}), "L") * scale.view({-1, 1});
  values.masked_fill_(finite.logical_not().view({-1, 1}), std::numeric_limits<double>::quiet_NaN());
  return values.reshape(out_sizes);
}

}  // namespace headscope::cpu
