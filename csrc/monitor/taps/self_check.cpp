#include "csrc/monitor/taps/self_check.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace headscope {

SelfCheck capture_self_check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& z, const AttentionCall& call,
                             const at::Tensor& rows) {
  const auto first = [](const at::Tensor& tensor) { return tensor.narrow(0, 0, 1); };
  AttentionCall own = call;
  if (own.bias && own.bias->dim() == 4 && own.bias->size(0) > 1) own.bias = first(*own.bias);
  if (own.documents) own.documents = first(*own.documents);
  const at::Tensor index = rows[0].clamp_min(0).to(z.device(), /*non_blocking=*/true);
  return {first(z).index_select(2, index),
          recompute_rows(first(q), first(k), first(v), first(rows), own)};
}

double self_check_error(const SelfCheck& check) {
  const at::Tensor given = check.given.to(at::kDouble).contiguous(),
                   recomputed = check.recomputed.to(at::kDouble).contiguous();
  const size_t width = static_cast<size_t>(given.size(-1));
  const int64_t rows = given.numel() / std::max<int64_t>(given.size(-1), 1);
  double error = 0, size = 0;
  bool any_comparable = false;
  for (int64_t r = 0; r < rows; ++r) {
    const std::span got(given.const_data_ptr<double>() + r * given.size(-1), width),
        want(recomputed.const_data_ptr<double>() + r * given.size(-1), width);
    // Rows without any visible key have nothing to compare; the others must be finite in both.
    if (!std::all_of(want.begin(), want.end(), [](double value) { return std::isfinite(value); }))
      continue;
    any_comparable = true;
    for (size_t i = 0; i < width; ++i) {
      if (!std::isfinite(got[i])) return std::numeric_limits<double>::infinity();
      error = std::max(error, std::abs(got[i] - want[i]));
      size = std::max(size, std::abs(want[i]));
    }
  }
  if (!any_comparable) return std::numeric_limits<double>::quiet_NaN();
  return size > 0 ? error / size : error;
}

double self_check_tolerance(at::ScalarType type) {
  // A few roundings of the output's own dtype; in f32 and f64 the fused kernels' order of summation
  // and exp dominate.
  switch (type) {
    case at::kBFloat16:
      return 4 * 0x1p-7;
    case at::kHalf:
      return 4 * 0x1p-10;
    default:
      return 2e-4;
  }
}

}  // namespace headscope
