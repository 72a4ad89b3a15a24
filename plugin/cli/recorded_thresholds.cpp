#include "plugin/cli/recorded_thresholds.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "headscope/screen.h"

namespace headscope::cli {
namespace {

constexpr int64_t kThresholdsContext = 256;

/// The context at which a threshold at 256 comes to `recorded`; nullopt: at no whole one.
std::optional<int64_t> span_of(double at_256, double recorded) {
  const double span = 1 + recorded * (kThresholdsContext - 1) / at_256;
  if (!(span >= 2 && span < INT32_MAX)) return std::nullopt;
  const int64_t whole = std::llround(span);
  const bool fits = std::abs(scaled_threshold(at_256, whole) - recorded) <= 1e-9 * recorded;
  return fits ? std::optional(whole) : std::nullopt;
}

}  // namespace

void note_threshold(const CsvReader& csv, size_t column, const std::string& pattern,
                    RecordedThresholds& thresholds) {
  const double threshold = csv.number(column);
  if (std::isnan(threshold)) return;
  if (!(threshold > 0) || !std::isfinite(threshold))
    throw csv.error(column, "is no selectivity above 0");
  const auto [known, is_new] = thresholds.try_emplace(pattern, threshold);
  if (known->second != threshold)
    throw csv.error(column, "differs from an earlier one of pattern '" + pattern +
                                "'; give --context with the tokens that the probe's query sees");
}

int64_t apply_recorded(const RecordedThresholds& thresholds, std::vector<Pattern>& patterns,
                       int64_t context) {
  const auto standard = standard_patterns();
  int64_t widest = 0;
  for (const Pattern& pattern : patterns) {
    const auto recorded = thresholds.find(pattern.name);
    const bool known = std::any_of(standard.begin(), standard.end(),
                                   [&](const Pattern& p) { return p.name == pattern.name; });
    if (recorded == thresholds.end() || !known) continue;
    widest = std::max(widest, span_of(pattern.formed_at_256, recorded->second).value_or(0));
  }
  if (widest > 0) context = widest;
  const double scale = scaled_threshold(1, context);
  for (Pattern& pattern : patterns) {
    const auto recorded = thresholds.find(pattern.name);
    if (recorded != thresholds.end() && scale * pattern.formed_at_256 != recorded->second)
      pattern.formed_at_256 = recorded->second / scale;
  }
  return context;
}

}  // namespace headscope::cli
