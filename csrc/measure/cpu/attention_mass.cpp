#include "csrc/measure/simd/attention_mass.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/measure/checks.h"
#include "csrc/measure/cpu/element_of.h"
#include "csrc/measure/entry_points.h"

namespace headscope::cpu {
namespace {

using measure::RowTensors;

simd::Strided4 strided(const at::Tensor& x) {
  return {x.const_data_ptr(), x.stride(0), x.stride(1), x.stride(2), x.stride(3)};
}

/// The tensors of one call and their raw view.
struct Call {
  Call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows, const AttentionCall& call)
      : positions(rows.contiguous()) {
    const int64_t tokens = std::max<int64_t>(1, std::max(q.size(2), k.size(2)));
    raw.element = element_of(q);
    raw.batch = q.size(0);
    raw.heads = q.size(1);
    raw.key_heads = k.size(1);
    raw.keys = k.size(2);
    raw.width = q.size(3);
    raw.q = strided(q);
    raw.k = strided(k);
    raw.positions = positions.const_data_ptr<int64_t>();
    raw.sampled = positions.size(1);
    raw.is_causal = call.is_causal;
    raw.scale = call.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3))));
    raw.softcap = call.softcap;
    raw.window = call.window > 0 ? std::min(call.window, tokens) : tokens;
    if (call.bias) {
      bias = call.bias->expand({q.size(0), q.size(1), q.size(2), k.size(2)});
      raw.bias = strided(bias);
      raw.bias_is_bool = bias.scalar_type() == at::kBool;
      if (!raw.bias_is_bool) raw.bias_element = element_of(bias);
    }
    if (call.documents) {
      documents = call.documents->contiguous();
      raw.documents = documents.const_data_ptr<int64_t>();
    }
    if (call.sinks) {
      sinks = call.sinks->to(at::kDouble).contiguous();
      raw.sinks = sinks.const_data_ptr<double>();
    }
  }

  at::Tensor positions, bias, documents, sinks;
  simd::RowsCall raw;
};

/// Calls visit(KeyHeads) for parts of all of them, shared out among the threads.
template <typename Visit>
void share_key_heads(const simd::RowsCall& call, const Visit& visit) {
  at::parallel_for(0, call.batch * call.key_heads, 1, [&](int64_t first, int64_t last) {
    visit(simd::KeyHeads{first, last});
  });
}

}  // namespace

RowTensors EntryPoints::attention_mass(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& rows, const at::Tensor& targets_in,
                                       const at::Tensor& offsets_in, int64_t groups,
                                       const AttentionCall& call) {
  const at::Tensor targets = targets_in.contiguous(), offsets = offsets_in.contiguous();
  const int64_t batch = q.size(0), heads = q.size(1), sampled = rows.size(1);
  measure::check_positions(rows, q.size(2), targets, offsets, k.size(2));
  const auto options = q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto by_group = [&] { return at::full({batch, heads, sampled, groups}, nan, options); };
  const auto by_row = [&] { return at::full({batch, heads, sampled}, nan, options); };
  at::Tensor mass = by_group(), score = by_group(), entropy = by_row(), max_logit = by_row(),
             log_sum_exp = by_row(), first_mass = by_row();
  if (batch * heads * sampled == 0)
    return {mass, score, entropy, max_logit, log_sum_exp, first_mass};

  const Call own(q, k, rows, call);
  const simd::TargetIndex index(targets.const_data_ptr<int64_t>(),
                                offsets.const_data_ptr<int64_t>(), batch * sampled, groups);
  AT_DISPATCH_FLOATING_TYPES(mass.scalar_type(), "headscope::attention_mass", [&] {
    const simd::MassOutputs<scalar_t> out = {
        mass.data_ptr<scalar_t>(),        score.data_ptr<scalar_t>(),
        entropy.data_ptr<scalar_t>(),     max_logit.data_ptr<scalar_t>(),
        log_sum_exp.data_ptr<scalar_t>(), first_mass.data_ptr<scalar_t>()};
    share_key_heads(own.raw,
                    [&](simd::KeyHeads part) { simd::measure_rows(own.raw, part, index, out); });
  });
  return {mass, score, entropy, max_logit, log_sum_exp, first_mass};
}

at::Tensor EntryPoints::recompute_rows(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& rows,
                                       const AttentionCall& call) {
  measure::check_positions(rows.contiguous(), q.size(2), at::Tensor(), at::Tensor(), k.size(2));
  at::Tensor out = at::full(
      {q.size(0), q.size(1), rows.size(1), v.size(3)}, std::numeric_limits<double>::quiet_NaN(),
      q.options().dtype(q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat));
  if (out.numel() == 0) return out;
  const Call own(q, k, rows, call);
  const simd::Strided4 values = strided(v);
  AT_DISPATCH_FLOATING_TYPES(out.scalar_type(), "headscope::recompute_rows", [&] {
    scalar_t* data = out.data_ptr<scalar_t>();
    share_key_heads(own.raw, [&](simd::KeyHeads part) {
      simd::output_rows(own.raw, part, values, v.size(3), data);
    });
  });
  return out;
}

}  // namespace headscope::cpu
