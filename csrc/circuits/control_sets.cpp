#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <stdexcept>

#include "csrc/circuits/text.h"
#include "headscope/ablation.h"

namespace headscope {
namespace {

constexpr int64_t kPoolFactor = 8;  // random sets drawn for each one kept, where there is a choice

/// The heads that a layer's part of a control set is drawn from, ascending.
struct LayerChoice {
  std::vector<HeadId> eligible;
  size_t count = 0;
};

using HeadMap = std::map<HeadId, const HeadReading*>;

HeadMap by_id(std::span<const HeadReading> heads, std::span<const HeadId> picked) {
  HeadMap map;
  for (const auto& head : heads) map[head.id] = &head;
  std::set<HeadId> seen;
  for (const HeadId id : picked) {
    if (!map.contains(id))
      throw std::invalid_argument("picked head " + circuits::name_of(id) + " has no reading");
    if (!seen.insert(id).second)
      throw std::invalid_argument("head " + circuits::name_of(id) + " is picked twice");
  }
  return map;
}

double selectivity_of(const HeadReading& head, size_t pattern) {
  if (pattern >= head.patterns.size())
    throw std::invalid_argument("pattern " + std::to_string(pattern) + " asked of head " +
                                circuits::name_of(head.id) + ", which has " +
                                std::to_string(head.patterns.size()));
  return head.patterns[pattern].selectivity;
}

LayerChoice choose_layer(int32_t layer, size_t count, const std::set<HeadId>& picked,
                         const HeadMap& heads, size_t pattern, double recall_threshold,
                         ControlSets& result) {
  std::vector<HeadId> below, others;
  for (const auto& [id, head] : heads) {
    if (id.layer != layer || picked.contains(id)) continue;
    (selectivity_of(*head, pattern) < recall_threshold ? below : others).push_back(id);
  }
  if (below.size() < count && !others.empty()) {
    result.relaxed = true;
    const auto key = [&](HeadId id) {
      const double selectivity = selectivity_of(*heads.at(id), pattern);
      return std::isnan(selectivity) ? std::numeric_limits<double>::infinity() : selectivity;
    };
    std::stable_sort(others.begin(), others.end(),
                     [&](HeadId a, HeadId b) { return key(a) < key(b); });
    others.resize(std::min(others.size(), count - below.size()));
    below.insert(below.end(), others.begin(), others.end());
    std::sort(below.begin(), below.end());
  }
  if (below.size() < count) result.short_layers = true;
  const size_t available = std::min(count, below.size());
  return {std::move(below), available};
}

/// min(n choose k, cap).
int64_t combinations(size_t n, size_t k, int64_t cap) {
  double count = 1;
  for (size_t i = 0; i < k; ++i) {
    count = count * static_cast<double>(n - i) / static_cast<double>(i + 1);
    if (count > static_cast<double>(cap)) return cap;
  }
  return static_cast<int64_t>(std::llround(count));
}

/// All subsets of `count` eligible heads, in lexicographic order.
std::vector<std::vector<HeadId>> subsets(const LayerChoice& layer) {
  std::vector<std::vector<HeadId>> all;
  std::vector<bool> taken(layer.eligible.size(), false);
  std::fill_n(taken.begin(), layer.count, true);
  do {
    auto& subset = all.emplace_back();
    for (size_t i = 0; i < taken.size(); ++i)
      if (taken[i]) subset.push_back(layer.eligible[i]);
  } while (std::prev_permutation(taken.begin(), taken.end()));
  return all;
}

std::vector<std::vector<HeadId>> every_set(const std::vector<LayerChoice>& layers) {
  std::vector<std::vector<HeadId>> sets = {{}};
  for (const auto& layer : layers) {
    std::vector<std::vector<HeadId>> longer;
    for (const auto& set : sets) {
      for (const auto& subset : subsets(layer)) {
        auto& extended = longer.emplace_back(set);
        extended.insert(extended.end(), subset.begin(), subset.end());
      }
    }
    sets = std::move(longer);
  }
  return sets;
}

std::vector<std::vector<HeadId>> random_sets(const std::vector<LayerChoice>& layers, int64_t pool,
                                             uint32_t seed) {
  RandomState random(seed);
  std::set<std::vector<HeadId>> seen;
  while (std::ssize(seen) < pool) {
    std::vector<HeadId> set;
    for (const auto& layer : layers) {
      for (const int64_t i :
           random.choice(std::ssize(layer.eligible), static_cast<int64_t>(layer.count)))
        set.push_back(layer.eligible[static_cast<size_t>(i)]);
    }
    std::sort(set.begin(), set.end());
    seen.insert(std::move(set));
  }
  return {seen.begin(), seen.end()};
}

double summed_squared_norm(std::span<const HeadId> ids, const HeadMap& heads) {
  double sum = 0;
  for (const HeadId id : ids) sum += heads.at(id)->output_norm * heads.at(id)->output_norm;
  return sum;
}

void keep_closest_in_norm(std::vector<std::vector<HeadId>>& sets, int64_t wanted,
                          std::span<const HeadId> picked, const HeadMap& heads) {
  const double aim = summed_squared_norm(picked, heads);
  std::vector<std::pair<double, std::vector<HeadId>>> ranked;
  for (auto& set : sets) {
    const double distance = std::abs(summed_squared_norm(set, heads) - aim);
    ranked.emplace_back(std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance,
                        std::move(set));
  }
  std::sort(ranked.begin(), ranked.end());
  ranked.resize(static_cast<size_t>(wanted));
  sets.clear();
  for (auto& [distance, set] : ranked) sets.push_back(std::move(set));
  std::sort(sets.begin(), sets.end());
}

}  // namespace

ControlSets draw_control_sets(std::span<const HeadId> picked, std::span<const HeadReading> heads,
                              size_t pattern, const ControlOptions& options) {
  if (options.wanted < 1)
    throw std::invalid_argument("controls wanted: " + std::to_string(options.wanted) +
                                "; give 1 or more");
  const HeadMap map = by_id(heads, picked);
  const std::set<HeadId> picked_set(picked.begin(), picked.end());
  std::map<int32_t, size_t> per_layer;
  for (const HeadId id : picked_set) ++per_layer[id.layer];

  ControlSets result;
  std::vector<LayerChoice> layers;
  const int64_t pool = options.wanted * kPoolFactor;
  int64_t exist = 1;  // capped just above the pool
  for (const auto& [layer, count] : per_layer) {
    auto choice =
        choose_layer(layer, count, picked_set, map, pattern, options.recall_threshold, result);
    if (choice.count == 0) continue;
    exist =
        std::min(exist * combinations(choice.eligible.size(), choice.count, pool + 1), pool + 1);
    layers.push_back(std::move(choice));
  }
  result.all_that_exist = layers.empty() || exist <= options.wanted;
  if (layers.empty()) return result;
  result.sets = exist <= pool ? every_set(layers) : random_sets(layers, pool, options.seed);
  if (std::ssize(result.sets) > options.wanted)
    keep_closest_in_norm(result.sets, options.wanted, picked, map);
  return result;
}

std::vector<HeadId> matched_random_reference(std::span<const HeadId> picked,
                                             int64_t heads_per_layer, RandomState& random) {
  std::vector<int32_t> layers;
  std::map<int32_t, std::set<int32_t>> picked_in;
  for (const HeadId id : picked) {
    if (id.head < 0 || id.head >= heads_per_layer)
      throw std::invalid_argument("picked head " + circuits::name_of(id) + " outside 0.." +
                                  std::to_string(heads_per_layer - 1));
    if (picked_in[id.layer].empty()) layers.push_back(id.layer);
    picked_in[id.layer].insert(id.head);
  }
  std::vector<HeadId> drawn;
  for (const int32_t layer : layers) {
    std::vector<int32_t> eligible;
    for (int32_t head = 0; head < heads_per_layer; ++head)
      if (!picked_in[layer].contains(head)) eligible.push_back(head);
    const auto count = std::min(std::ssize(picked_in[layer]), std::ssize(eligible));
    if (count == 0) continue;
    auto indices = random.choice(std::ssize(eligible), count);
    std::sort(indices.begin(), indices.end());
    for (const int64_t i : indices) drawn.push_back({layer, eligible[static_cast<size_t>(i)]});
  }
  return drawn;
}

}  // namespace headscope
