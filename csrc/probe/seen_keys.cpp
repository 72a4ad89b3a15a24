#include "csrc/probe/seen_keys.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace headscope {
namespace {

// Masks are also written with large finite numbers, -1e9 or the dtype's lowest; no key weighs
// anything there.
constexpr double kHidden = -1e4;

at::Tensor attended(const at::Tensor& mask) {
  return mask.scalar_type() == at::kBool ? mask : mask.le(kHidden).logical_not();
}

/// The keys of `rows` that any head of a mask [H, Tq, Tk] attends to: bool [rows, Tk].
at::Tensor joined_heads(const at::Tensor& mask, const at::Tensor& rows) {
  at::Tensor any;
  for (int64_t h = 0; h < mask.size(0); ++h) {
    const at::Tensor seen = attended(mask.select(0, h).index_select(0, rows));
    any = any.defined() ? any.logical_or(seen) : seen;
  }
  return any;
}

/// The sampled rows of a mask, joined over heads: bool [B or 1, R or 1, T or 1].
at::Tensor mask_rows(at::Tensor mask, const at::Tensor& rows) {
  while (mask.dim() < 4) mask = mask.unsqueeze(0);
  const at::Tensor sampled = rows.clamp_min(0);
  if (mask.size(2) == 1) return attended(mask.select(2, 0)).any(1).unsqueeze(1);
  if (mask.size(0) == 1) {
    // One mask for all sequences: each position is looked at once, however often it is asked for.
    const at::Tensor own = mask.select(0, 0);
    if (rows.numel() >= own.size(1)) {
      const at::Tensor all = joined_heads(own, at::arange(own.size(1), sampled.options()));
      return all.index_select(0, sampled.reshape({-1}))
          .view({rows.size(0), rows.size(1), own.size(2)});
    }
    return joined_heads(own, sampled.reshape({-1})).view({rows.size(0), rows.size(1), own.size(2)});
  }
  std::vector<at::Tensor> all;
  for (int64_t b = 0; b < rows.size(0); ++b)
    all.push_back(joined_heads(mask.select(0, b), sampled.select(0, b)));
  return at::stack(all);
}

}  // namespace

at::Tensor seen_keys(const at::Tensor& rows, int64_t tokens, const AttentionCall& call) {
  const bool windowed = call.window > 0 && call.window < tokens;
  if ((!windowed && !call.documents && !call.keep && !call.bias) || rows.numel() == 0) return {};
  // Where the call's tensors are; what comes back is on the host.
  at::Device device = rows.device();
  for (const std::optional<at::Tensor>* told : {&call.bias, &call.keep, &call.documents}) {
    if (*told) device = (*told)->device();
  }
  const at::Tensor own_rows = rows.to(device), query = own_rows.unsqueeze(2),
                   key = at::arange(tokens, own_rows.options());
  const at::Tensor causal = key.le(query);
  at::Tensor seen = causal;
  if (windowed) seen = seen.logical_and(key.gt(query - call.window));
  if (call.documents) {
    const at::Tensor own = call.documents->gather(1, own_rows.clamp_min(0)).unsqueeze(2);
    seen = seen.logical_and(call.documents->unsqueeze(1).eq(own));
  }
  if (call.keep) seen = seen.logical_and(call.keep->unsqueeze(1));
  if (call.bias && call.bias->numel() > 0) seen = seen.logical_and(mask_rows(*call.bias, own_rows));
  return seen.equal(causal) ? at::Tensor() : seen.to(at::kCPU).contiguous();
}

std::vector<int64_t> seen_counts(const at::Tensor& targets, const at::Tensor& offsets,
                                 const at::Tensor& seen) {
  const int64_t* offset = offsets.const_data_ptr<int64_t>();
  const auto count = static_cast<size_t>(offsets.numel() - 1);
  std::vector<int64_t> counts(count);
  if (!seen.defined()) {
    for (size_t i = 0; i < count; ++i) counts[i] = offset[i + 1] - offset[i];
    return counts;
  }
  const int64_t* target = targets.const_data_ptr<int64_t>();
  const int64_t tokens = seen.size(2), sampled = seen.size(0) * seen.size(1);
  const size_t groups = count / static_cast<size_t>(std::max<int64_t>(sampled, 1));
  for (size_t i = 0; i < count; ++i) {
    const bool* row = seen.const_data_ptr<bool>() + static_cast<int64_t>(i / groups) * tokens;
    counts[i] = std::count_if(target + offset[i], target + offset[i + 1],
                              [&](int64_t t) { return row[t]; });
  }
  return counts;
}

}  // namespace headscope
