#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "csrc/measure/checks.h"
#include "csrc/measure/composed_rows.h"
#include "csrc/measure/cuda/device.h"
#include "csrc/measure/cuda/element_type.h"
#include "csrc/measure/entry_points.h"

namespace headscope::cuda {
namespace {

using measure::RowTensors;

bool attention_fits_kernel(const at::Tensor& q, const at::Tensor& k) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  const auto small = [](const at::Tensor& x) {
    return std::all_of(x.sizes().begin(), x.sizes().end(), [](int64_t n) { return n <= kMost; });
  };
  return has_kernel(q.scalar_type()) && q.size(3) <= kernels::kMaxAttentionWidth && small(q) &&
         small(k);
}

void set_strides(int64_t (&strides)[4], const at::Tensor& tensor) {
  std::copy_n(tensor.strides().begin(), 4, strides);
}

RowTensors launch(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                  const at::Tensor& targets, const at::Tensor& offsets, int64_t groups,
                  const AttentionCall& call) {
  kernels::AttentionMassProblem problem;
  problem.q = q.const_data_ptr();
  set_strides(problem.q_strides, q);
  problem.k = k.const_data_ptr();
  set_strides(problem.k_strides, k);
  problem.type = element_type(q.scalar_type());
  problem.batch = static_cast<int>(q.size(0));
  problem.query_heads = static_cast<int>(q.size(1));
  problem.key_heads = static_cast<int>(k.size(1));
  problem.queries = static_cast<int>(q.size(2));
  problem.keys = static_cast<int>(k.size(2));
  problem.width = static_cast<int>(q.size(3));
  problem.rows = rows.const_data_ptr<int64_t>();
  problem.targets = targets.const_data_ptr<int64_t>();
  problem.offsets = offsets.const_data_ptr<int64_t>();
  problem.target_count = targets.numel();
  problem.sampled = static_cast<int>(rows.size(1));
  problem.groups = static_cast<int>(groups);
  problem.is_causal = call.is_causal;
  problem.scale =
      static_cast<float>(call.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.size(3)))));
  problem.softcap = static_cast<float>(call.softcap);
  problem.window = call.window;
  if (call.documents) {
    problem.documents = call.documents->const_data_ptr<int64_t>();
    problem.document_strides[0] = call.documents->stride(0);
    problem.document_strides[1] = call.documents->stride(1);
  }
  at::Tensor sinks, bias;  // hold what the launch reads
  if (call.sinks) {
    sinks = call.sinks->to(at::kFloat).contiguous();
    problem.sinks = sinks.const_data_ptr<float>();
  }
  if (call.bias) {
    bias = call.bias->scalar_type() == at::kDouble ? call.bias->to(at::kFloat) : *call.bias;
    bias = bias.expand({q.size(0), q.size(1), q.size(2), k.size(2)});
    set_strides(problem.bias_strides, bias);
    if (bias.scalar_type() == at::kBool) {
      problem.mask = bias.const_data_ptr<bool>();
    } else {
      problem.bias = bias.const_data_ptr();
      problem.bias_type = element_type(bias.scalar_type());
    }
  }

  const auto options = q.options().dtype(at::kFloat);
  const auto by_group = [&] {
    return at::empty({q.size(0), q.size(1), rows.size(1), groups}, options);
  };
  const auto by_row = [&] { return at::empty({q.size(0), q.size(1), rows.size(1)}, options); };
  const at::Tensor mass = by_group(), score = by_group(), entropy = by_row(), max_logit = by_row(),
                   log_sum_exp = by_row(), first_mass = by_row();
  const kernels::AttentionMassOutputs out = {
      mass.data_ptr<float>(),      score.data_ptr<float>(),       entropy.data_ptr<float>(),
      max_logit.data_ptr<float>(), log_sum_exp.data_ptr<float>(), first_mass.data_ptr<float>()};
  const size_t bytes = kernels::attention_mass_workspace_bytes(problem);
  const at::Tensor workspace = at::empty({static_cast<int64_t>(bytes)}, options.dtype(at::kByte));
  check(
      kernels::launch_attention_mass(problem, out, workspace.data_ptr(), bytes, current_stream(q)),
      "attention_mass");
  return {mass, score, entropy, max_logit, log_sum_exp, first_mass};
}

}  // namespace

RowTensors EntryPoints::attention_mass(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& rows_in, const at::Tensor& targets_in,
                                       const at::Tensor& offsets_in, int64_t groups,
                                       const AttentionCall& call) {
  const c10::DeviceGuard guard(q.device());
  if (rows_in.is_cpu() && targets_in.is_cpu() && offsets_in.is_cpu())
    measure::check_positions(rows_in, q.size(2), targets_in, offsets_in, k.size(2));
  const at::Tensor rows = to_device(rows_in, q.device()).contiguous(),
                   targets = to_device(targets_in, q.device()).contiguous(),
                   offsets = to_device(offsets_in, q.device()).contiguous();
  return attention_fits_kernel(q, k)
             ? launch(q, k, rows, targets, offsets, groups, call)
             : measure::composed_mass(q, k, rows, targets, offsets, groups, call);
}

at::Tensor EntryPoints::recompute_rows(const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const at::Tensor& rows,
                                       const AttentionCall& call) {
  const c10::DeviceGuard guard(q.device());
  if (rows.is_cpu()) measure::check_positions(rows, q.size(2), {}, {}, k.size(2));
  return measure::composed_output(q, k, v, to_device(rows, q.device()), call);
}

}  // namespace headscope::cuda
