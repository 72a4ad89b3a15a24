#include "csrc/probe/train_plan.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <random>
#include <set>

#include "csrc/probe/group_table.h"
#include "csrc/probe/seen_keys.h"

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
Positions lag_matched(const Positions& targets, int64_t query, std::vector<bool> taken) {
  for (const int64_t target : targets) taken[static_cast<size_t>(target)] = true;
  Positions controls;
  for (const int64_t target : targets) {
    for (int64_t distance = 1; distance <= query; ++distance) {
      bool found = false;
      for (const int64_t t : {target + distance, target - distance}) {
        if (t < 1 || query - t < TrainPlan::kSmallestGap || taken[static_cast<size_t>(t)]) continue;
        taken[static_cast<size_t>(t)] = true;
        controls.push_back(t);
        found = true;
        break;
      }
      if (found) break;
    }
  }
  return controls;
}

at::Tensor sample_rows(int64_t batch, int64_t tokens, int64_t sampled, uint64_t seed,
                       const std::optional<at::Tensor>& keep_in) {
  const int64_t count = std::min(sampled, tokens);
  const at::Tensor keep = keep_in ? keep_in->to(at::kCPU).contiguous() : at::Tensor();
  std::mt19937_64 random(seed);
  Positions rows;
  for (int64_t b = 0; b < batch; ++b) {
    Positions kept;
    for (int64_t t = 0; t < tokens; ++t) {
      if (!keep.defined() || keep.const_data_ptr<bool>()[b * tokens + t]) kept.push_back(t);
    }
    const auto available = static_cast<int64_t>(kept.size());
    for (const int64_t i : sample(available, std::min(count, available), random)) {
      rows.push_back(kept[static_cast<size_t>(i)]);
    }
    rows.resize(static_cast<size_t>((b + 1) * count), -1);
  }
  return int64_tensor(rows, {batch, count});
}

}  // namespace

TrainPlan plan_train(int64_t batch, int64_t tokens, const at::Tensor& ids,
                     std::span<const Pattern> patterns, int64_t sampled, uint64_t seed,
                     const AttentionCall& call) {
  const at::Tensor rows = sample_rows(batch, tokens, sampled, seed, call.keep);
  return plan_rows(rows, tokens, ids, patterns, seen_keys(rows, tokens, call));
}

TrainPlan plan_rows(const at::Tensor& rows, int64_t tokens, const at::Tensor& ids_in,
                    std::span<const Pattern> patterns, const at::Tensor& seen) {
  TrainPlan plan;
  plan.rows = rows;
  plan.seen = seen;
  plan.groups = static_cast<int64_t>(patterns.size());
  const auto by_content = [&](size_t p) { return patterns[p].null == NullKind::kPermuteTargets; };
  for (size_t p = 0; p < patterns.size(); ++p)
    plan.control_group.push_back(by_content(p) ? plan.groups++ : -1);
  for (int64_t& group : plan.control_group) group = group < 0 ? plan.groups : group;
  ++plan.groups;
  const at::Tensor ids = ids_in.defined() ? ids_in.contiguous() : at::Tensor();
  const int64_t sampled = rows.size(1);
  GroupTable table;
  std::vector<int64_t> row(static_cast<size_t>(tokens), 0);
  for (int64_t i = 0; i < rows.numel(); ++i) {
    const int64_t query = rows.const_data_ptr<int64_t>()[i];
    const bool* seen_row = seen.defined() ? seen.const_data_ptr<bool>() + i * tokens : nullptr;
    const auto is_seen = [&](int64_t t) { return seen_row == nullptr || seen_row[t]; };
    if (ids.defined() && (seen_row != nullptr || i % sampled == 0)) {
      const int64_t* own = ids.const_data_ptr<int64_t>() + i / sampled * tokens;
      std::copy(own, own + tokens, row.begin());
      for (int64_t t = 0; t < query; ++t) {
        if (!is_seen(t)) row[static_cast<size_t>(t)] = kUnseenToken;
      }
    }
    std::vector<Positions> targets(patterns.size());
    // Neither a target nor a control: the first and the last few keys, every target, the unseen.
    std::vector<bool> excluded(static_cast<size_t>(tokens), false);
    excluded[0] = true;
    for (int64_t t = std::max<int64_t>(0, query - 5); t <= query; ++t)
      excluded[static_cast<size_t>(t)] = true;
    for (size_t p = 0; p < patterns.size() && query >= 0; ++p) {
      if (by_content(p) && !ids.defined()) continue;
      Positions own = cleaned_positions(patterns[p].targets(row, query), query + 1);
      std::erase_if(own, [&](int64_t t) {
        return !is_seen(t) || (by_content(p) && query - t < TrainPlan::kSmallestGap);
      });
      for (const int64_t t : own) excluded[static_cast<size_t>(t)] = true;
      targets[p] = std::move(own);
    }
    Positions ordinary;
    for (int64_t t = 0; t <= query; ++t) {
      if (!is_seen(t)) {
        excluded[static_cast<size_t>(t)] = true;
      } else if (!excluded[static_cast<size_t>(t)]) {
        ordinary.push_back(t);
      }
    }
    const Positions row_controls = evenly_spaced(ordinary, TrainPlan::kControls);
    for (const auto& own : targets) {
      table.add(own);
      plan.target_count.push_back(static_cast<int32_t>(own.size()));
    }
    for (size_t p = 0; p < patterns.size(); ++p) {
      if (!by_content(p)) {
        plan.control_count.push_back(static_cast<int32_t>(row_controls.size()));
        continue;
      }
      const Positions controls = lag_matched(targets[p], query, excluded);
      table.add(controls);
      plan.control_count.push_back(static_cast<int32_t>(controls.size()));
    }
    table.add(row_controls);
  }
  plan.targets = table.targets();
  plan.offsets = table.offsets();
  return plan;
}

}  // namespace headscope
