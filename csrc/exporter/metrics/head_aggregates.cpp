#include "csrc/exporter/metrics/head_aggregates.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/circuit_metrics.h"

namespace headscope::exporter {
namespace {

/// A figure of the finite heads that have it.
std::vector<double> measured(const Snapshot& snapshot, double HeadReading::*field) {
  std::vector<double> values;
  for (const HeadReading& head : snapshot.heads) {
    if (head.finite && !std::isnan(head.*field)) values.push_back(head.*field);
  }
  return values;
}

double lowest(const std::vector<double>& values) {
  return values.empty() ? kNaN : *std::min_element(values.begin(), values.end());
}

double highest(const std::vector<double>& values) {
  return values.empty() ? kNaN : *std::max_element(values.begin(), values.end());
}

/// The lower of two middle values.
double median(std::vector<double> values) {
  if (values.empty()) return kNaN;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double mean(const std::vector<double>& values) {
  if (values.empty()) return kNaN;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double highest_of_pattern(const Snapshot& snapshot, size_t pattern, double PatternReading::*field) {
  double best = kNaN;
  for (const HeadReading& head : snapshot.heads) {
    if (!head.finite || pattern >= head.patterns.size()) continue;
    best = std::fmax(best, head.patterns[pattern].*field);  // a NaN gives way
  }
  return best;
}

void add_patterns(const Snapshot& snapshot, const std::string& source, FamilyBuilder& builder) {
  const size_t shown = std::min(snapshot.patterns.size(), kMaxCircuits);
  const std::vector<std::string> patterns =
      sanitise_labels({snapshot.patterns.begin(), snapshot.patterns.begin() + shown});
  for (size_t i = 0; i < shown; ++i) {
    builder.add_measured("headscope_heads_highest_selectivity_ratio", {source, patterns[i]},
                         highest_of_pattern(snapshot, i, &PatternReading::selectivity));
    builder.add_measured("headscope_heads_highest_attention_mass_ratio", {source, patterns[i]},
                         highest_of_pattern(snapshot, i, &PatternReading::mass));
  }
}

}  // namespace

void add_head_aggregates(const Snapshot& snapshot, FamilyBuilder& builder) {
  const std::string source = to_string(snapshot.source);
  const auto nonfinite = std::count_if(snapshot.heads.begin(), snapshot.heads.end(),
                                       [](const HeadReading& head) { return !head.finite; });
  builder.add("headscope_heads", {source}, static_cast<double>(snapshot.heads.size()));
  builder.add("headscope_heads_nonfinite", {source}, static_cast<double>(nonfinite));

  const std::vector<double> ranks = measured(snapshot, &HeadReading::participation_ratio);
  if (!ranks.empty()) {
    const auto collapsed = std::count_if(ranks.begin(), ranks.end(), [](double rank) {
      return rank < kCollapsedParticipationRatio;
    });
    builder.add("headscope_heads_collapsed", {source}, static_cast<double>(collapsed));
  }
  builder.add_measured("headscope_heads_lowest_participation_ratio", {source}, lowest(ranks));
  builder.add_measured("headscope_heads_median_participation_ratio", {source}, median(ranks));
  const std::vector<double> entropies = measured(snapshot, &HeadReading::entropy);
  builder.add_measured("headscope_heads_lowest_attention_entropy_nats", {source},
                       lowest(entropies));
  builder.add_measured("headscope_heads_median_attention_entropy_nats", {source},
                       median(entropies));
  builder.add_measured("headscope_heads_highest_max_logit", {source},
                       highest(measured(snapshot, &HeadReading::max_logit)));
  builder.add_measured("headscope_heads_mean_sink_mass_ratio", {source},
                       mean(measured(snapshot, &HeadReading::sink_mass)));
  add_patterns(snapshot, source, builder);
}

}  // namespace headscope::exporter
