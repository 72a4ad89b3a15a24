#include "headscope/screen.h"

#include <algorithm>
#include <cmath>
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

}  // namespace headscope
