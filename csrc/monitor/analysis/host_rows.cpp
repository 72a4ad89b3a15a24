#include "csrc/monitor/analysis/host_rows.h"

#include <ATen/ATen.h>

#include "csrc/probe/seen_keys.h"

namespace headscope {
namespace {

at::Tensor as_float(const at::Tensor& tensor) {
  return tensor.to(at::kCPU, at::kFloat).contiguous();
}

}  // namespace

HostRows::HostRows(const AttentionRows& rows)
    : rows_{as_float(rows.mass),      as_float(rows.score),       as_float(rows.entropy),
            as_float(rows.max_logit), as_float(rows.log_sum_exp), as_float(rows.first_mass)},
      heads_(rows_.mass.size(1)),
      sampled_(rows_.mass.size(2)),
      groups_(rows_.mass.size(3)),
      mass_(rows_.mass.const_data_ptr<float>()),
      score_(rows_.score.const_data_ptr<float>()),
      entropy_(rows_.entropy.const_data_ptr<float>()),
      max_logit_(rows_.max_logit.const_data_ptr<float>()),
      log_sum_exp_(rows_.log_sum_exp.const_data_ptr<float>()),
      first_mass_(rows_.first_mass.const_data_ptr<float>()) {}

SeenKeys::SeenKeys(const LayerCapture& layer, const ProbePlan& plan, size_t chunk)
    : groups_(plan.groups),
      context_(plan.context),
      seen_(chunk < layer.seen.size() ? layer.seen[chunk] : at::Tensor()),
      counts_(seen_counts(plan.chunks[chunk].targets, plan.chunks[chunk].offsets, seen_)) {}

}  // namespace headscope
