#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <stdexcept>

#include "csrc/circuits/intervals.h"
#include "csrc/circuits/text.h"
#include "headscope/ablation.h"

namespace headscope {
namespace {

using circuits::name_of;

/// The heads of one layer that a set is drawn from, and how many of them.
struct LayerHeads {
  std::vector<HeadId> heads;
  size_t count = 0;
};

std::vector<LayerHeads> layers_of(std::span<const HeadId> picked,
                                  std::span<const HeadReading> heads) {
  std::set<HeadId> known;
  for (const HeadReading& head : heads) known.insert(head.id);
  std::map<int32_t, LayerHeads> layers;
  std::set<HeadId> seen;
  for (const HeadId id : picked) {
    if (!known.contains(id))
      throw std::invalid_argument("picked head " + name_of(id) + " has no reading");
    if (!seen.insert(id).second)
      throw std::invalid_argument("head " + name_of(id) + " is picked twice");
    ++layers[id.layer].count;
  }
  for (const HeadId id : known) {
    const auto layer = layers.find(id.layer);
    if (layer != layers.end()) layer->second.heads.push_back(id);
  }
  std::vector<LayerHeads> all;
  for (auto& [number, layer] : layers) all.push_back(std::move(layer));
  return all;
}

/// n choose k in double; exact as long as it is below 2^53.
double binomial(size_t n, size_t k) {
  double count = 1;
  for (size_t i = 0; i < std::min(k, n - k); ++i)
    count = std::round(count * static_cast<double>(n - i) / static_cast<double>(i + 1));
  return count;
}

/// A uniformly drawn set, ascending: the first heads of a partial Fisher-Yates shuffle in each
/// layer.
std::vector<HeadId> draw_set(const std::vector<LayerHeads>& layers, std::mt19937_64& engine) {
  std::vector<HeadId> set;
  for (const LayerHeads& layer : layers) {
    std::vector<HeadId> pool = layer.heads;
    for (size_t i = 0; i < layer.count; ++i) {
      std::swap(pool[i], pool[i + circuits::draw_below(engine, pool.size() - i)]);
      set.push_back(pool[i]);
    }
  }
  std::sort(set.begin(), set.end());
  return set;
}

}  // namespace

LabelSets draw_label_sets(std::span<const HeadId> picked, std::span<const HeadReading> heads,
                          int64_t wanted, uint64_t seed) {
  if (wanted < 1)
    throw std::invalid_argument("label sets wanted: " + std::to_string(wanted) +
                                "; give 1 or more");
  const std::vector<LayerHeads> layers = layers_of(picked, heads);
  LabelSets labels;
  labels.exist = 1;
  for (const LayerHeads& layer : layers) labels.exist *= binomial(layer.heads.size(), layer.count);
  std::vector<HeadId> own(picked.begin(), picked.end());
  std::sort(own.begin(), own.end());
  std::set<std::vector<HeadId>> seen{own};
  const double others = std::min(labels.exist - 1, static_cast<double>(wanted));
  std::mt19937_64 engine(seed);
  // Where nearly all of few are wanted, repeats cost at most a harmonic sum of draws.
  while (static_cast<double>(labels.sets.size()) < others) {
    auto set = draw_set(layers, engine);
    if (seen.insert(set).second) labels.sets.push_back(std::move(set));
  }
  return labels;
}

LabelTest LabelTest::plan(double level_left, double exist, const VerdictRule& rule) {
  // Six tenths now leave some for later attempts; the first look takes five sixths of the level.
  constexpr double kShare = 0.6, kFirstLook = 1.2, kSecondLook = 6;
  LabelTest test;
  const double smallest = 1 / exist;
  test.level = kShare * level_left;
  if (smallest > test.level && smallest <= level_left) test.level = smallest;
  if (!(test.level > 0) || exist < 2) return test;
  const double first = std::ceil(kFirstLook / test.level - 1e-9) - 1;
  const double others = exist - 1, most = static_cast<double>(rule.most_label_sets);
  if (others <= first && others <= most) {
    test.exhaustive = true;
    test.first = test.last = static_cast<int64_t>(others);
    return test;
  }
  test.first = static_cast<int64_t>(std::min(first, most));
  // P(exactly one of `last` is stronger, and among the first) = first / (last (last + 1)).
  double last = first;
  while (first / (last * (last + 1)) > test.level / kSecondLook) ++last;
  test.last = static_cast<int64_t>(std::min({last, others, most}));
  return test;
}

bool LabelTest::possible() const { return last > 0 && smallest_p() <= level * (1 + 1e-9); }

LabelTest::Answer LabelTest::after(int64_t run, int64_t as_strong) const {
  const auto p = [](int64_t strong, int64_t of) {
    return (1 + static_cast<double>(strong)) / (1 + static_cast<double>(of));
  };
  const double enough = level * (1 + 1e-9);
  if (exhaustive) {
    if (p(as_strong, last) > enough) return Answer::kFailed;
    return run >= last ? Answer::kPassed : Answer::kOpen;
  }
  // The second look allows one stronger set where its level does.
  const bool one_allowed =
      last > first &&
      static_cast<double>(first) / (static_cast<double>(last) * static_cast<double>(last + 1)) <=
          level - 1 / static_cast<double>(first + 1);
  if (as_strong > (one_allowed ? 1 : 0)) return Answer::kFailed;
  if (run < first) return Answer::kOpen;
  if (as_strong == 0) return p(0, run) <= enough ? Answer::kPassed : Answer::kFailed;
  return run < last ? Answer::kOpen : Answer::kPassed;
}

}  // namespace headscope
