#include "csrc/exporter/metrics/head_series.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "csrc/exporter/common/sanitise.h"

namespace headscope::exporter {
namespace {

constexpr std::string_view kNoPattern;

/// Calls visit(metric, pattern or kNoPattern, value) for every series of one reading.
template <typename Visit>
void for_each_series(const HeadReading& head, Source source,
                     const std::vector<std::string>& patterns, const Visit& visit) {
  const bool probe = source == Source::kProbe;
  // NaN says "not measured", but of a head that is not finite it is the reading.
  const auto shown = [&](double value) { return !head.finite || !std::isnan(value); };
  for (const Figure<HeadReading>& figure : kHeadFigures) {
    if (figure.metric.name.empty()) continue;
    const double value = head.*figure.member;
    const bool measured_here = probe || !figure.probe_only;
    if (shown(value) && (measured_here || !std::isnan(value))) {
      visit(figure.metric.name, kNoPattern, value);
    }
  }
  visit("headscope_head_finite", kNoPattern, head.finite ? 1.0 : 0.0);
  if (probe) visit("headscope_head_specialising", kNoPattern, head.specialising ? 1.0 : 0.0);
  for (size_t i = 0; i < std::min(patterns.size(), head.patterns.size()); ++i) {
    for (const Figure<PatternReading>& figure : kPatternFigures) {
      if (figure.metric.name.empty()) continue;
      const double value = head.patterns[i].*figure.member;
      if (shown(value)) visit(figure.metric.name, std::string_view(patterns[i]), value);
    }
  }
}

double best_selectivity(const HeadReading& head) {
  double best = -std::numeric_limits<double>::infinity();
  for (const PatternReading& pattern : head.patterns) {
    if (pattern.selectivity > best) best = pattern.selectivity;
  }
  return best;
}

/// What one head would add to the scrape.
struct Candidate {
  HeadId id;
  double selectivity = -std::numeric_limits<double>::infinity();
  size_t series = 0;
  const HeadReading* train = nullptr;
  const HeadReading* probe = nullptr;
};

void gather(const Snapshot* snapshot, const HeadReading* Candidate::*slot,
            const std::vector<std::string>& patterns, std::map<HeadId, Candidate>& candidates) {
  if (snapshot == nullptr) return;
  for (const HeadReading& head : snapshot->heads) {
    Candidate& candidate = candidates[head.id];
    candidate.id = head.id;
    if (candidate.*slot != nullptr) continue;  // the same head twice would be the same series twice
    candidate.*slot = &head;
    candidate.selectivity = std::max(candidate.selectivity, best_selectivity(head));
    for_each_series(head, snapshot->source, patterns,
                    [&](std::string_view, std::string_view, double) { ++candidate.series; });
  }
}

/// The heads that do not fit, best first; `left_out` counts their series.
std::set<HeadId> choose_left_out(const std::map<HeadId, Candidate>& candidates, size_t max_series,
                                 size_t& left_out) {
  std::vector<const Candidate*> order;
  for (const auto& [id, candidate] : candidates) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [](const Candidate* a, const Candidate* b) {
    return a->selectivity > b->selectivity;
  });
  std::set<HeadId> heads;
  size_t used = 0;
  for (const Candidate* candidate : order) {
    // Once a head does not fit, no lesser one may take its place.
    if (heads.empty() && used + candidate->series <= max_series) {
      used += candidate->series;
    } else {
      heads.insert(candidate->id);
      left_out += candidate->series;
    }
  }
  return heads;
}

void add_reading(const HeadReading& head, Source source, const std::vector<std::string>& patterns,
                 FamilyBuilder& builder) {
  const std::string layer = std::to_string(head.id.layer);
  const std::string number = std::to_string(head.id.head);
  const std::string_view name = to_string(source);
  for_each_series(head, source, patterns,
                  [&](std::string_view metric, std::string_view pattern, double value) {
                    if (pattern.data() == nullptr) {
                      builder.add(metric, {layer, number, name}, value);
                    } else {
                      builder.add(metric, {layer, number, name, pattern}, value);
                    }
                  });
}

}  // namespace

std::set<HeadId> add_head_series(const Snapshot* train, const Snapshot* probe, size_t max_series,
                                 FamilyBuilder& builder) {
  const auto labels = [](const Snapshot* snapshot) {
    return snapshot ? sanitise_labels(snapshot->patterns) : std::vector<std::string>{};
  };
  const std::vector<std::string> train_patterns = labels(train);
  const std::vector<std::string> probe_patterns = labels(probe);
  std::map<HeadId, Candidate> candidates;
  gather(train, &Candidate::train, train_patterns, candidates);
  gather(probe, &Candidate::probe, probe_patterns, candidates);

  size_t series_left_out = 0;
  std::set<HeadId> heads_left_out = choose_left_out(candidates, max_series, series_left_out);
  for (const auto& [id, candidate] : candidates) {
    if (heads_left_out.contains(id)) continue;
    if (candidate.train) add_reading(*candidate.train, Source::kTrain, train_patterns, builder);
    if (candidate.probe) add_reading(*candidate.probe, Source::kProbe, probe_patterns, builder);
  }
  builder.add("headscope_series_cap", {}, static_cast<double>(max_series));
  builder.add("headscope_series_left_out", {}, static_cast<double>(series_left_out));
  builder.add("headscope_heads_left_out", {}, static_cast<double>(heads_left_out.size()));
  return heads_left_out;
}

}  // namespace headscope::exporter
