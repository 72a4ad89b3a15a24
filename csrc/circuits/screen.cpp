#include "headscope/screen.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>

namespace headscope {
namespace {

constexpr double kReferenceSpan = 255;  // T - 1 at the context the thresholds are stated for

const PatternReading& reading_of(const HeadReading& head, size_t pattern) {
  if (pattern >= head.patterns.size())
    throw std::invalid_argument("pattern " + std::to_string(pattern) + " asked of head " +
                                std::to_string(head.id.layer) + "." + std::to_string(head.id.head) +
                                ", which has " + std::to_string(head.patterns.size()));
  return head.patterns[pattern];
}

constexpr double kConservedShare = .18;  // of all heads, that the paper's panel has among its first

std::vector<int64_t> count_classes(const std::vector<std::optional<size_t>>& classes,
                                   std::span<const size_t> heads, size_t patterns) {
  std::vector<int64_t> counts(patterns + 1);
  for (const size_t h : heads) ++counts[classes[h].value_or(patterns)];
  return counts;
}

std::vector<size_t> order_by_integral(std::span<const HeadReading> heads) {
  std::vector<size_t> order;
  for (size_t h = 0; h < heads.size(); ++h)
    if (!std::isnan(heads[h].pr_integral)) order.push_back(h);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (heads[a].pr_integral != heads[b].pr_integral)
      return heads[a].pr_integral > heads[b].pr_integral;
    return heads[a].id < heads[b].id;
  });
  return order;
}

SinkShares sink_shares(std::span<const HeadReading> heads, size_t first_token, double threshold,
                       double mass_floor) {
  SinkShares shares;
  const PatternShares by_selectivity = pattern_shares(heads, first_token, threshold);
  shares.any = by_selectivity.any;
  shares.by_class = by_selectivity.by_class;
  int64_t by_mass = 0;
  for (const auto& head : heads) {
    const auto& reading = reading_of(head, first_token);
    shares.any_by_layer[head.id.layer] += reading.selectivity >= threshold;
    // The probe's own rows where the figure over all sampled rows was not kept.
    const double mass = std::isnan(head.sink_mass) ? reading.mass : head.sink_mass;
    if (std::isnan(mass)) continue;
    ++shares.mass_measured;
    by_mass += mass >= mass_floor;
  }
  if (shares.mass_measured > 0)
    shares.by_mass = static_cast<double>(by_mass) / static_cast<double>(shares.mass_measured);
  return shares;
}

/// The figures of the first K heads by integral.
void rank_screen(Screen& screen, std::optional<int64_t> top_k, size_t patterns) {
  const auto heads = static_cast<int64_t>(screen.head_class.size());
  const auto ranked = static_cast<int64_t>(screen.order.size());
  if (top_k && (*top_k < 1 || *top_k > ranked))
    throw std::invalid_argument("the first " + std::to_string(*top_k) +
                                " heads by PR integral were asked for, and " +
                                std::to_string(ranked) + " have one; ask for 1 to that many");
  const int64_t k = top_k.value_or(default_top_k(heads));
  if (k > ranked || heads == 0) return;
  screen.top_k = k;
  const auto first = [&](int64_t count) {
    return std::span<const size_t>(screen.order).first(static_cast<size_t>(count));
  };
  screen.top_classes = count_classes(screen.head_class, first(k), patterns);
  std::vector<int64_t> ks = {5, 10, 15, 20, 30, k};
  std::sort(ks.begin(), ks.end());
  ks.erase(std::unique(ks.begin(), ks.end()), ks.end());
  for (const int64_t at : ks) {
    if (at > ranked) break;
    const int64_t specialised = at - count_classes(screen.head_class, first(at), patterns).back();
    screen.precision.push_back(
        {at, specialised, static_cast<double>(specialised) / static_cast<double>(at)});
  }
  screen.specialised_top =
      static_cast<double>(k - screen.top_classes.back()) / static_cast<double>(heads);
}

}  // namespace

double scaled_threshold(double at_256, int64_t context) {
  return at_256 * static_cast<double>(context - 1) / kReferenceSpan;
}

std::optional<size_t> best_pattern(std::span<const PatternReading> patterns, double threshold) {
  std::optional<size_t> best;
  for (size_t i = 0; i < patterns.size(); ++i) {
    const double selectivity = patterns[i].selectivity;
    if (selectivity >= threshold && (!best || selectivity > patterns[*best].selectivity)) best = i;
  }
  return best;
}

std::vector<HeadId> circuit_members(std::span<const HeadReading> heads, size_t pattern,
                                    double threshold, double mass_floor) {
  std::vector<HeadId> members;
  for (const auto& head : heads) {
    const auto& reading = reading_of(head, pattern);
    const bool enough_mass = std::isnan(reading.mass) || reading.mass >= mass_floor;
    if (reading.selectivity >= threshold && enough_mass) members.push_back(head.id);
  }
  std::sort(members.begin(), members.end());
  return members;
}

PatternShares pattern_shares(std::span<const HeadReading> heads, size_t pattern, double threshold) {
  if (heads.empty()) return {};
  double any = 0, by_class = 0;
  for (const auto& head : heads) {
    if (!(reading_of(head, pattern).selectivity >= threshold)) continue;
    ++any;
    if (best_pattern(head.patterns, threshold) == pattern) ++by_class;
  }
  const auto count = static_cast<double>(heads.size());
  return {any / count, by_class / count};
}

std::vector<std::optional<size_t>> head_classes(std::span<const HeadReading> heads,
                                                double class_threshold) {
  std::vector<std::optional<size_t>> classes;
  for (const auto& head : heads) classes.push_back(best_pattern(head.patterns, class_threshold));
  return classes;
}

int64_t default_top_k(int64_t heads) {
  // nearbyint: halves to even, as the reference rounds.
  const auto share =
      static_cast<int64_t>(std::nearbyint(kConservedShare * static_cast<double>(heads)));
  return heads > 0 ? std::max<int64_t>(1, share) : 0;
}

Screen screen_heads(std::span<const Pattern> patterns, std::span<const HeadReading> heads,
                    int64_t context, const ScreenRules& rules, std::optional<int64_t> top_k) {
  if (context < 2)
    throw std::invalid_argument("context must be at least 2, got " + std::to_string(context));
  for (const auto& head : heads) {
    if (head.patterns.size() == patterns.size()) continue;
    throw std::invalid_argument("head " + std::to_string(head.id.layer) + "." +
                                std::to_string(head.id.head) + " has readings of " +
                                std::to_string(head.patterns.size()) + " patterns, the screen " +
                                std::to_string(patterns.size()));
  }
  const auto threshold = [&](double at_256) {
    return rules.scale_to_context ? scaled_threshold(at_256, context) : at_256;
  };
  Screen screen;
  screen.rules = rules;
  screen.context = context;
  screen.class_threshold = threshold(rules.class_at_256);
  screen.head_class = head_classes(heads, screen.class_threshold);
  for (size_t p = 0; p < patterns.size(); ++p) {
    const double formed = threshold(patterns[p].formed_at_256);
    auto members = circuit_members(heads, p, formed, rules.mass_floor);
    if (rules.previous_token_by_class && patterns[p].name == "previous-token") {
      std::erase_if(members, [&](HeadId id) {
        const auto head = std::find_if(heads.begin(), heads.end(),
                                       [&](const auto& reading) { return reading.id == id; });
        return screen.head_class[static_cast<size_t>(head - heads.begin())] != p;
      });
    }
    screen.circuits.push_back({formed, std::move(members)});
    if (patterns[p].name == "first-token")
      screen.sinks = sink_shares(heads, p, screen.class_threshold, rules.sink_mass_floor);
  }
  std::vector<size_t> all(heads.size());
  std::iota(all.begin(), all.end(), size_t{0});
  screen.classes = count_classes(screen.head_class, all, patterns.size());
  if (!heads.empty())
    screen.specialised =
        1 - static_cast<double>(screen.classes.back()) / static_cast<double>(heads.size());
  screen.order = order_by_integral(heads);
  rank_screen(screen, top_k, patterns.size());
  return screen;
}

std::vector<int64_t> heads_above(std::span<const HeadReading> heads, size_t pattern,
                                 std::span<const double> thresholds) {
  std::vector<int64_t> counts(thresholds.size());
  for (const auto& head : heads)
    for (size_t i = 0; i < thresholds.size(); ++i)
      counts[i] += reading_of(head, pattern).selectivity > thresholds[i];
  return counts;
}

ClassStability class_stability(std::span<const std::vector<std::optional<size_t>>> labelings) {
  if (labelings.size() < 2)
    throw std::invalid_argument("class stability needs at least 2 labelings, got " +
                                std::to_string(labelings.size()));
  const size_t heads = labelings.front().size();
  for (const auto& labeling : labelings) {
    if (labeling.size() == heads && heads > 0) continue;
    throw std::invalid_argument("class stability needs labelings of the same heads, got " +
                                std::to_string(heads) + " and " + std::to_string(labeling.size()));
  }
  double unanimous = 0, agreeing = 0, pairs = 0;
  for (size_t h = 0; h < heads; ++h)
    unanimous += std::all_of(labelings.begin(), labelings.end(), [&](const auto& labeling) {
      return labeling[h] == labelings.front()[h];
    });
  for (size_t a = 0; a < labelings.size(); ++a) {
    for (size_t b = a + 1; b < labelings.size(); ++b, ++pairs)
      for (size_t h = 0; h < heads; ++h) agreeing += labelings[a][h] == labelings[b][h];
  }
  const auto count = static_cast<double>(heads);
  return {static_cast<int64_t>(labelings.size()), static_cast<int64_t>(heads), unanimous / count,
          agreeing / (pairs * count)};
}

}  // namespace headscope
