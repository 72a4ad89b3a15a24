#include "csrc/monitor/analysis/host_rows.h"

#include <ATen/ATen.h>

#include <utility>

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

SeenKeys::SeenKeys(int64_t groups, at::Tensor rows, const at::Tensor& targets, at::Tensor offsets,
                   at::Tensor seen)
    : groups_(groups),
      sampled_(rows.size(1)),
      rows_(std::move(rows)),
      offsets_(std::move(offsets)),
      seen_(std::move(seen)),
      counts_(seen_counts(targets, offsets_, seen_)) {}

SeenKeys SeenKeys::at_last(const LayerCapture& layer, const ProbePlan& plan, size_t chunk) {
  const ProbePlan::Chunk& asked = plan.chunks[chunk];
  return {plan.groups, asked.rows, asked.targets, asked.offsets,
          chunk < layer.seen.size() ? layer.seen[chunk] : at::Tensor()};
}

SeenKeys SeenKeys::at_queries(const LayerCapture& layer, const QueryPlan& plan, size_t chunk) {
  const QueryPlan::Chunk& asked = plan.chunks[chunk];
  return {plan.groups(), asked.rows, asked.targets, asked.offsets,
          chunk < layer.query_seen.size() ? layer.query_seen[chunk] : at::Tensor()};
}

}  // namespace headscope
