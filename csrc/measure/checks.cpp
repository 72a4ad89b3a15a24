#include "csrc/measure/checks.h"

#include <ATen/ATen.h>

#include <cmath>

namespace headscope::measure {
namespace {

bool is_activation_type(at::ScalarType type) {
  return type == at::kDouble || type == at::kFloat || type == at::kBFloat16 || type == at::kHalf;
}

void check_activation(const char* name, const at::Tensor& tensor) {
  TORCH_CHECK(tensor.dim() == 4, "headscope: ", name, " must be [B, H, T, D], got shape ",
              tensor.sizes());
  TORCH_CHECK(is_activation_type(tensor.scalar_type()), "headscope: ", name,
              " must be float64, float32, bfloat16 or float16, got ", tensor.scalar_type());
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

void check_gram(const at::Tensor& gram, const at::Tensor& sum, const at::Tensor& count,
                const at::Tensor& z, const at::Tensor& shift, const OptionalTensor& keep) {
  check_activation("z", z);
  const int64_t heads = z.size(1), width = z.size(3);
  TORCH_CHECK(gram.sizes() == at::IntArrayRef({heads, width, width}),
              "headscope: gram must be [H, D, D] = [", heads, ", ", width, ", ", width, "] for z ",
              z.sizes(), ", got ", gram.sizes());
  TORCH_CHECK(sum.sizes() == at::IntArrayRef({heads, width}), "headscope: sum must be [H, D] = [",
              heads, ", ", width, "], got ", sum.sizes());
  TORCH_CHECK(shift.sizes() == sum.sizes(), "headscope: shift must be [H, D] = ", sum.sizes(),
              ", got ", shift.sizes());
  TORCH_CHECK(gram.scalar_type() == at::kFloat || gram.scalar_type() == at::kDouble,
              "headscope: gram must be float32 or float64, got ", gram.scalar_type());
  TORCH_CHECK(sum.scalar_type() == gram.scalar_type() && shift.scalar_type() == gram.scalar_type(),
              "headscope: gram, sum and shift must share one dtype, got ", gram.scalar_type(), ", ",
              sum.scalar_type(), " and ", shift.scalar_type());
  TORCH_CHECK(gram.is_contiguous() && sum.is_contiguous(),
              "headscope: gram and sum must be contiguous");
  TORCH_CHECK(count.numel() == 1 && count.scalar_type() == at::kLong,
              "headscope: count must be one int64, got ", count.sizes(), " of ",
              count.scalar_type());
  if (keep) {
    TORCH_CHECK(keep->sizes() == at::IntArrayRef({z.size(0), z.size(2)}) &&
                    keep->scalar_type() == at::kBool,
                "headscope: keep must be bool [B, T] = [", z.size(0), ", ", z.size(2), "], got ",
                keep->sizes(), " of ", keep->scalar_type());
  }
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

void check_rows(const at::Tensor& q, const at::Tensor& rows) {
  TORCH_CHECK(rows.dim() == 2 && rows.size(0) == q.size(0) && rows.scalar_type() == at::kLong,
              "headscope: rows must be int64 [B, R] with B = ", q.size(0), ", got ", rows.sizes(),
              " of ", rows.scalar_type());
}

void check_targets(const at::Tensor& rows, const at::Tensor& targets, const at::Tensor& offsets,
                   int64_t groups) {
  TORCH_CHECK(groups >= 0, "headscope: groups must not be negative, got ", groups);
  TORCH_CHECK(targets.dim() == 1 && targets.scalar_type() == at::kLong,
              "headscope: targets must be int64 [n], got ", targets.sizes(), " of ",
              targets.scalar_type());
  TORCH_CHECK(offsets.dim() == 1 && offsets.scalar_type() == at::kLong &&
                  offsets.numel() == rows.numel() * groups + 1,
              "headscope: offsets must be int64 [B * R * groups + 1] = [",
              rows.numel() * groups + 1, "], got ", offsets.sizes(), " of ", offsets.scalar_type());
}

void check_values(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
  check_activation("v", v);
  TORCH_CHECK(v.scalar_type() == q.scalar_type(), "headscope: q and v must share one dtype, got ",
              q.scalar_type(), " and ", v.scalar_type());
  TORCH_CHECK(v.size(0) == k.size(0) && v.size(1) == k.size(1) && v.size(2) == k.size(2),
              "headscope: k ", k.sizes(), " and v ", v.sizes(), " must agree in B, Hkv and T");
}

void check_matrices(const at::Tensor& matrices) {
  TORCH_CHECK(matrices.dim() >= 2 && matrices.size(-1) == matrices.size(-2),
              "headscope: matrices must be [..., n, n], got ", matrices.sizes());
  TORCH_CHECK(matrices.scalar_type() == at::kFloat || matrices.scalar_type() == at::kDouble,
              "headscope: matrices must be float32 or float64, got ", matrices.scalar_type());
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
