#include "csrc/measure/checks.h"

#include <ATen/ATen.h>

#include <cmath>

namespace headscope::measure {
namespace {

bool is_activation_type(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

void check_mask(const at::Tensor& mask, at::IntArrayRef want) {
  TORCH_CHECK(mask.scalar_type() == at::kBool || is_activation_type(mask.scalar_type()),
              "headscope: mask must be bool or additive float, got ", mask.scalar_type());
  bool fits = mask.dim() <= 4;
  for (int64_t i = 1; fits && i <= mask.dim(); ++i) {
    const int64_t size = mask.size(mask.dim() - i);
    fits = size == 1 || size == want[static_cast<size_t>(4 - i)];
  }
  TORCH_CHECK(fits, "headscope: mask ", mask.sizes(),
              " does not broadcast to [B, Hq, Tq, Tk] = ", want);
}

}  // namespace

at::ScalarType sum_type(const at::Tensor& input) {
  return input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

void check_activation(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() == 4, "headscope: ", name, " must be [B, H, T, D], got shape ",
              tensor.sizes());
  TORCH_CHECK(is_activation_type(tensor.scalar_type()), "headscope: ", name,
              " must be float64, float32, bfloat16 or float16, got ", tensor.scalar_type());
}

void check_attention(const at::Tensor& q, const at::Tensor& k, const AttentionCall& call) {
  check_activation("q", q);
  check_activation("k", k);
  TORCH_CHECK(q.scalar_type() == k.scalar_type(), "headscope: q and k must share one dtype, got ",
              q.scalar_type(), " and ", k.scalar_type());
  TORCH_CHECK(q.size(0) == k.size(0) && q.size(3) == k.size(3), "headscope: q ", q.sizes(),
              " and k ", k.sizes(), " must agree in B and D");
  TORCH_CHECK(q.size(1) == 0 || (k.size(1) > 0 && q.size(1) % k.size(1) == 0), "headscope: the ",
              q.size(1), " query heads must be a multiple of the ", k.size(1), " key-value heads");
  TORCH_CHECK(!call.scale || std::isfinite(*call.scale), "headscope: scale must be finite, got ",
              call.scale.value_or(0));
  TORCH_CHECK(call.softcap >= 0 && std::isfinite(call.softcap),
              "headscope: softcap must be 0 (none) or a finite value above 0, got ", call.softcap);
  TORCH_CHECK(call.window >= 0, "headscope: window must be 0 (none) or a number of keys, got ",
              call.window);
  if (call.bias) check_mask(*call.bias, {q.size(0), q.size(1), q.size(2), k.size(2)});
  if (call.documents) {
    TORCH_CHECK(q.size(2) == k.size(2), "headscope: documents need as many queries as keys, got ",
                q.size(2), " and ", k.size(2));
    TORCH_CHECK(call.documents->sizes() == at::IntArrayRef({q.size(0), q.size(2)}) &&
                    call.documents->scalar_type() == at::kLong,
                "headscope: documents must be int64 [B, T] = [", q.size(0), ", ", q.size(2),
                "], got ", call.documents->sizes(), " of ", call.documents->scalar_type());
  }
  if (call.sinks) {
    TORCH_CHECK(call.sinks->sizes() == at::IntArrayRef({q.size(1)}) &&
                    is_activation_type(call.sinks->scalar_type()),
                "headscope: sinks must be one float a query head, [Hq] = [", q.size(1), "], got ",
                call.sinks->sizes(), " of ", call.sinks->scalar_type());
  }
}

void check_positions(const at::Tensor& rows_in, int64_t queries, const at::Tensor& targets_in,
                     const at::Tensor& offsets_in, int64_t keys) {
  const at::Tensor rows = rows_in.contiguous();
  const int64_t* t = rows.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < rows.numel(); ++i) {
    TORCH_CHECK(t[i] >= -1 && t[i] < queries, "headscope: sampled row ", t[i], " is outside the ",
                queries, " queries");
  }
  if (!targets_in.defined()) return;
  const at::Tensor targets = targets_in.contiguous(), offsets = offsets_in.contiguous();
  const int64_t* position = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    TORCH_CHECK(position[i] >= 0 && position[i] < keys, "headscope: target ", position[i],
                " is outside the ", keys, " keys");
  }
  const int64_t* offset = offsets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < offsets.numel(); ++i) {
    TORCH_CHECK(offset[i] >= (i == 0 ? 0 : offset[i - 1]) && offset[i] <= targets.numel(),
                "headscope: offsets must ascend within the ", targets.numel(), " targets, got ",
                offset[i], " at ", i);
  }
}

void check_device(const at::Tensor& first, std::initializer_list<const at::Tensor*> others) {
  for (const at::Tensor* other : others) {
    TORCH_CHECK(other == nullptr || other->device() == first.device(),
                "headscope: all tensors of a call must be on ", first.device(), ", but one is on ",
                other->device());
  }
}

}  // namespace headscope::measure
