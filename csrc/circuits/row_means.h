#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "headscope/screen_rows.h"

namespace headscope {

/// What a mean attention on controls counts at least, the reference's.
inline constexpr double kLeastControlMass = 1e-8;

inline double ratio_of_means(double target_mean, double control_mean) {
  // A NaN in either stays.
  return target_mean / (control_mean < kLeastControlMass ? kLeastControlMass : control_mean);
}

/// Attention of one head from every row's query.
class HeadWeights {
 public:
  HeadWeights(const ScreenRows& rows, std::span<const float> weights)
      : context_(static_cast<size_t>(rows.context)), weights_(weights) {
    const size_t expected = rows.query.size() * context_;
    if (weights.size() != expected)
      throw std::invalid_argument("attention of a head must be [" +
                                  std::to_string(rows.query.size()) + ", " +
                                  std::to_string(rows.context) + "] = " + std::to_string(expected) +
                                  " values, got " + std::to_string(weights.size()));
  }

  double sum(size_t row, std::span<const int64_t> positions) const {
    double total = 0;
    for (const int64_t t : positions) total += weights_[row * context_ + static_cast<size_t>(t)];
    return total;
  }

  double mean(size_t row, std::span<const int64_t> positions) const {
    return sum(row, positions) / static_cast<double>(positions.size());
  }

 private:
  size_t context_;
  std::span<const float> weights_;
};

/// Whether a row says something about a pattern.
inline bool row_counts(const ScreenRows& rows, const ScreenTargets& targets, size_t row) {
  return !targets.positions[row].empty() && !rows.controls[row].empty();
}

inline bool is_target_of_any(const ScreenRows& rows, size_t row, int64_t position) {
  return std::any_of(rows.patterns.begin(), rows.patterns.end(), [&](const auto& pattern) {
    const auto& positions = pattern.positions[row];
    return std::find(positions.begin(), positions.end(), position) != positions.end();
  });
}

}  // namespace headscope
