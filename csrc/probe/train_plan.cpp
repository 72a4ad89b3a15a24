#include "csrc/probe/train_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>
#include <set>

#include "csrc/probe/group_table.h"

namespace headscope {
namespace {

using Positions = std::vector<int64_t>;

/// `count` distinct values of 0..population-1, ascending (Floyd's sampling; own bounded draw, so
/// that every standard library gives the same).
Positions sample(int64_t population, int64_t count, std::mt19937_64& random) {
  std::set<int64_t> chosen;
  for (int64_t last = population - count; last < population; ++last) {
    const auto drawn = static_cast<int64_t>(random() % static_cast<uint64_t>(last + 1));
    if (!chosen.insert(drawn).second) chosen.insert(last);
  }
  return {chosen.begin(), chosen.end()};
}

/// For each target the nearest key that is no target, no control yet, and far enough from the
/// query; ties to the nearer lag.
Positions lag_matched(const Positions& targets, int64_t query, const std::set<int64_t>& excluded) {
  std::set<int64_t> taken(excluded);
  taken.insert(targets.begin(), targets.end());
  Positions controls;
  for (const int64_t target : targets) {
    for (int64_t distance = 1; distance <= query; ++distance) {
      bool found = false;
      for (const int64_t t : {target + distance, target - distance}) {
        if (t < 1 || query - t < TrainPlan::kSmallestGap || taken.contains(t)) continue;
        taken.insert(t);
        controls.push_back(t);
        found = true;
        break;
      }
      if (found) break;
    }
  }
  return controls;
}

}  // namespace

TrainPlan plan_train(int64_t batch, int64_t tokens, const at::Tensor& ids_in,
                     std::span<const Pattern> patterns, int64_t sampled, uint64_t seed) {
  TrainPlan plan;
  plan.groups = 2 * static_cast<int64_t>(patterns.size());
  const int64_t count = std::min(sampled, tokens);
  const at::Tensor ids = ids_in.defined() ? ids_in.contiguous() : at::Tensor();
  std::mt19937_64 random(seed);
  Positions all_rows;
  GroupTable table;
  std::vector<int64_t> blank(static_cast<size_t>(tokens), 0);
  for (int64_t b = 0; b < batch; ++b) {
    const std::span<const int64_t> row =
        ids.defined()
            ? std::span(ids.const_data_ptr<int64_t>() + b * tokens, static_cast<size_t>(tokens))
            : std::span<const int64_t>(blank);
    for (const int64_t query : sample(tokens, count, random)) {
      all_rows.push_back(query);
      std::vector<Positions> targets;
      std::set<int64_t> special{0};
      for (int64_t t = std::max<int64_t>(0, query - 5); t <= query; ++t) special.insert(t);
      for (const Pattern& pattern : patterns) {
        const bool by_content = pattern.null == NullKind::kPermuteTargets;
        Positions own = by_content && !ids.defined() ? Positions{} : pattern.targets(row, query);
        std::erase_if(own, [&](int64_t t) {
          return t < 0 || t > query || (by_content && query - t < TrainPlan::kSmallestGap);
        });
        if (by_content) special.insert(own.begin(), own.end());
        targets.push_back(std::move(own));
      }
      Positions ordinary;
      for (int64_t t = 0; t <= query; ++t) {
        if (!special.contains(t)) ordinary.push_back(t);
      }
      const Positions row_controls = evenly_spaced(ordinary, TrainPlan::kControls);
      for (const auto& own : targets) {
        table.add(own);
        plan.target_count.push_back(static_cast<int32_t>(own.size()));
      }
      for (size_t p = 0; p < patterns.size(); ++p) {
        const bool by_content = patterns[p].null == NullKind::kPermuteTargets;
        const Positions controls =
            by_content ? lag_matched(targets[p], query, special) : row_controls;
        table.add(controls);
        plan.control_count.push_back(static_cast<int32_t>(controls.size()));
      }
    }
  }
  plan.rows = int64_tensor(all_rows, {batch, count});
  plan.targets = table.targets();
  plan.offsets = table.offsets();
  return plan;
}

}  // namespace headscope
