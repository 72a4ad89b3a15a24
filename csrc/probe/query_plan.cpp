#include "csrc/probe/query_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "csrc/probe/group_table.h"
#include "headscope/random_state.h"

namespace headscope {
namespace {

using Positions = std::vector<int64_t>;

// From here on a query has ordinary keys to compare four targets with.
constexpr int64_t kLeastQuery = 12;
constexpr size_t kFewestBeside = 3;

/// The nearest keys of [first, query] around `targets` that are not among them: as many as there
/// are targets, at least kFewestBeside.
Positions keys_beside(const Positions& targets, int64_t first, int64_t query) {
  const size_t wanted = std::max(kFewestBeside, targets.size());
  Positions beside;
  if (targets.empty()) return beside;
  for (int64_t away = 1; away <= query + 1 && beside.size() < wanted; ++away) {
    std::set<int64_t> ring;
    for (const int64_t t : targets) ring.insert({t - away, t + away});
    for (const int64_t key : ring) {
      if (key < first || key > query || beside.size() >= wanted) continue;
      if (std::binary_search(targets.begin(), targets.end(), key)) continue;
      if (std::find(beside.begin(), beside.end(), key) == beside.end()) beside.push_back(key);
    }
  }
  std::sort(beside.begin(), beside.end());
  return beside;
}

}  // namespace

std::vector<int64_t> chunk_ends(const ProbeOptions& options, int64_t examples) {
  std::vector<int64_t> ends;
  int64_t end = 0;
  const int64_t quarter = (examples + 3) / 4;
  if (options.whole_every > 1)
    while (end < quarter) ends.push_back(end += std::min(options.micro_batch, quarter - end));
  while (end < examples) ends.push_back(end += std::min(options.micro_batch, examples - end));
  return ends;
}

QueryPlan plan_queries(const at::Tensor& tokens_in, const ProbeOptions& options) {
  QueryPlan plan;
  for (size_t p = 0; p < options.patterns.size(); ++p)
    if (options.patterns[p].null == NullKind::kEffectBound) plan.patterns.push_back(p);
  if (options.position_queries == 0 || plan.patterns.empty()) return plan;
  const at::Tensor tokens = tokens_in.contiguous();
  const int64_t examples = tokens.size(0), context = tokens.size(1);
  const int64_t window = options.window > 0 ? std::min(options.window, context) : context;
  const int64_t lowest = std::min(std::max(context / 4, kLeastQuery), context - 2);
  const int64_t places = context - 1 - lowest;
  plan.queries = std::min(options.position_queries, places);

  RandomState random(options.seed + 5);
  double inverse_keys = 0;
  int64_t begin = 0;
  for (const int64_t end : chunk_ends(options, examples)) {
    const int64_t count = end - begin;
    GroupTable table;
    Positions rows;
    for (int64_t n = begin; n < begin + count; ++n) {
      const std::span row(tokens.const_data_ptr<int64_t>() + n * context,
                          static_cast<size_t>(context));
      for (int64_t q = 0; q < plan.queries; ++q) {
        const int64_t query = random.integer(lowest + q * places / plan.queries,
                                             lowest + (q + 1) * places / plan.queries);
        const int64_t first = std::max<int64_t>(0, query - window + 1);
        rows.push_back(query);
        inverse_keys += 1 / static_cast<double>(query - first);
        const auto until = row.first(static_cast<size_t>(query) + 1);
        std::set<int64_t> special{0};
        for (int64_t t = query - 5; t <= query; ++t) special.insert(t);
        std::vector<Positions> targets;
        for (const Pattern& pattern : options.patterns) {
          Positions own = cleaned_positions(pattern.targets(until, query), query + 1);
          special.insert(own.begin(), own.end());
          if (pattern.null == NullKind::kEffectBound) targets.push_back(std::move(own));
        }
        for (const Positions& own : targets) table.add(own);
        for (const Positions& own : targets) table.add(keys_beside(own, first, query));
        Positions ordinary;
        for (int64_t t = first; t <= query; ++t)
          if (!special.contains(t)) ordinary.push_back(t);
        table.add(ordinary);
      }
    }
    plan.chunks.push_back(
        {int64_tensor(rows, {count, plan.queries}), table.targets(), table.offsets()});
    begin = end;
  }
  plan.span = 1 + static_cast<int64_t>(
                      std::lround(static_cast<double>(examples * plan.queries) / inverse_keys));
  return plan;
}

}  // namespace headscope
