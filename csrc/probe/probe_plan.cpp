#include "csrc/probe/probe_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <set>

#include "csrc/probe/group_table.h"

namespace headscope {
namespace {

using Positions = std::vector<int64_t>;

/// First, self, the five before, and every pattern's targets: what controls leave out.
std::set<int64_t> special_positions(const std::vector<Positions>& targets, int64_t context) {
  std::set<int64_t> special{0};
  for (int64_t t = context - 6; t < context; ++t) special.insert(t);
  for (const auto& positions : targets) special.insert(positions.begin(), positions.end());
  return special;
}

}  // namespace

std::vector<int64_t> ProbePlan::contexts() const {
  std::vector<int64_t> all(patterns.size(), span);
  if (queries.queries > 0)
    for (const size_t p : queries.patterns) all[p] = queries.span;
  return all;
}

int64_t ProbePlan::place_in_queries(size_t pattern) const {
  if (queries.queries == 0) return -1;
  const auto found = std::find(queries.patterns.begin(), queries.patterns.end(), pattern);
  return found == queries.patterns.end() ? -1 : found - queries.patterns.begin();
}

ProbePlan plan_probe(const at::Tensor& tokens_in, const ProbeOptions& options) {
  const at::Tensor tokens = tokens_in.contiguous();
  const size_t pattern_count = options.patterns.size();
  ProbePlan plan;
  plan.examples = tokens.size(0);
  plan.context = tokens.size(1);
  plan.patterns = options.patterns;
  plan.controls = options.controls;
  plan.candidate.assign(pattern_count, {});
  plan.target_count.assign(pattern_count, {});
  plan.left_out.assign(pattern_count, 0);
  plan.queries = plan_queries(tokens, options);

  plan.span = options.window > 0 ? std::min(options.window, plan.context) : plan.context;
  const int64_t first_seen = plan.context - plan.span;

  // Every row's targets, and the distinct target sets of the permuted patterns: the columns of
  // their null.
  std::vector<std::vector<Positions>> targets(
      static_cast<size_t>(plan.examples));  // [row][pattern]
  std::map<Positions, int32_t> column_of;
  std::vector<Positions> columns;
  std::vector<std::set<int64_t>> column_positions(pattern_count);
  for (int64_t n = 0; n < plan.examples; ++n) {
    const std::span row(tokens.const_data_ptr<int64_t>() + n * plan.context,
                        static_cast<size_t>(plan.context));
    for (size_t p = 0; p < pattern_count; ++p) {
      Positions own =
          cleaned_positions(plan.patterns[p].targets(row, plan.context - 1), plan.context);
      // A chance occurrence beyond the window is no target: the planted one lies within it.
      if (plan.patterns[p].null == NullKind::kPermuteTargets)
        std::erase_if(own, [&](int64_t t) { return t < first_seen; });
      plan.target_count[p].push_back(static_cast<int64_t>(own.size()));
      int32_t column = -1;
      if (plan.patterns[p].null == NullKind::kPermuteTargets && !own.empty()) {
        const auto found = column_of.find(own);
        if (found != column_of.end()) {
          column = found->second;
        } else if (static_cast<int64_t>(columns.size()) < ProbePlan::kMaxCandidateSets) {
          column = static_cast<int32_t>(columns.size());
          column_of.emplace(own, column);
          columns.push_back(own);
        }
        if (column >= 0)
          column_positions[p].insert(own.begin(), own.end());
        else
          ++plan.left_out[p];
      }
      plan.candidate[p].push_back(column);
      targets[static_cast<size_t>(n)].push_back(std::move(own));
    }
  }
  plan.candidate_sets = static_cast<int64_t>(columns.size());
  plan.groups = plan.candidate_group(plan.candidate_sets);

  const Positions reference = reference_control_positions(plan.context);
  for (int64_t begin = 0; begin < plan.examples; begin += options.micro_batch) {
    const int64_t count = std::min(options.micro_batch, plan.examples - begin);
    GroupTable table;
    for (int64_t n = begin; n < begin + count; ++n) {
      const auto& own = targets[static_cast<size_t>(n)];
      const std::set<int64_t> special = special_positions(own, plan.context);
      Positions ordinary;
      for (int64_t t = first_seen; t < plan.context; ++t) {
        if (!special.contains(t)) ordinary.push_back(t);
      }
      for (const auto& positions : own) table.add(positions);
      for (size_t p = 0; p < pattern_count; ++p) {
        if (plan.patterns[p].null == NullKind::kEffectBound) {
          table.add(ordinary);
          continue;
        }
        Positions lag_matched;
        for (const int64_t t : column_positions[p]) {
          if (!special.contains(t)) lag_matched.push_back(t);
        }
        table.add(lag_matched);
      }
      table.add(plan.controls == ControlPositions::kReference50 ? reference : ordinary);
      for (const auto& column : columns) table.add(column);
    }
    plan.chunks.push_back({tokens.narrow(0, begin, count).clone(),
                           at::full({count, 1}, plan.context - 1, at::kLong), table.targets(),
                           table.offsets()});
  }
  return plan;
}

}  // namespace headscope
