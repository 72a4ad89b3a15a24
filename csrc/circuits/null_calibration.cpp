#include "headscope/null_calibration.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "csrc/circuits/row_means.h"
#include "headscope/random_state.h"

namespace headscope {
namespace {

constexpr double kLeastRecallThreshold = 2;

[[noreturn]] void refuse_calibration(const std::string& what) {
  throw std::invalid_argument("headscope null calibration: " + what);
}

/// numpy's quantile of ascending values: linear between the two nearest ranks.
double quantile_of_sorted(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

NullDistribution distribution_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {values.back(), quantile_of_sorted(values, .99), quantile_of_sorted(values, .95),
          quantile_of_sorted(values, .5)};
}

/// Targets of one draw: those of counted row i lie at [begins[i], begins[i + 1]).
struct DrawnPositions {
  std::vector<int64_t> positions;
  std::vector<size_t> begins = {0};

  void end_row() { begins.push_back(positions.size()); }
  std::span<const int64_t> of_row(size_t i) const {
    return std::span(positions).subspan(begins[i], begins[i + 1] - begins[i]);
  }
};

/// The targets of all draws, for every head the same.
class DrawnTargets {
 public:
  DrawnTargets(const ScreenRows& rows, size_t pattern, const SelectivityNullOptions& options)
      : rows_(rows), targets_(rows.patterns.at(pattern)), random_(options.seed) {
    const bool permuted = options.targets == NullTargets::kPermuted;
    for (size_t r = 0; r < rows.query.size(); ++r)
      if (row_counts(rows, targets_, r) && (permuted || has_ordinary_position(r)))
        counted_.push_back(r);
    if (counted_.size() < 2)
      refuse_calibration("at least 2 rows must count for " + targets_.pattern + ", got " +
                         std::to_string(counted_.size()));
    if (permuted) check_that_rows_differ();
    for (int64_t n = 0; n < options.draws; ++n)
      draws_.push_back(permuted ? permuted_draw() : uniform_draw());
  }

  const std::vector<size_t>& counted() const { return counted_; }
  const ScreenTargets& targets() const { return targets_; }

  /// Selectivity of each draw, over the rows in which it has targets; NaN if there is none.
  ///
  /// controls  mean attention on the controls of each counted row
  std::vector<double> selectivities(const HeadWeights& attention,
                                    const std::vector<double>& controls) const {
    std::vector<double> selectivities;
    for (const auto& draw : draws_) {
      double total = 0, control = 0, rows = 0;
      for (size_t i = 0; i < counted_.size(); ++i) {
        const auto positions = draw.of_row(i);
        if (positions.empty()) continue;
        total += attention.mean(counted_[i], positions);
        control += controls[i];
        ++rows;
      }
      selectivities.push_back(rows > 0 ? ratio_of_means(total / rows, control / rows) : kNaN);
    }
    return selectivities;
  }

 private:
  bool has_ordinary_position(size_t row) const {
    for (int64_t t = 1; t < rows_.query[row]; ++t)
      if (!is_target_of_any(rows_, row, t)) return true;
    return false;
  }

  void check_that_rows_differ() const {
    const auto& first = targets_.positions[counted_.front()];
    const bool same = std::all_of(counted_.begin(), counted_.end(),
                                  [&](size_t r) { return targets_.positions[r] == first; });
    if (same)
      refuse_calibration("the targets of " + targets_.pattern +
                         " are the same in every row, so permuting them changes nothing; use "
                         "NullTargets::kUniform or rows with several queries");
  }

  DrawnPositions permuted_draw() {
    const auto order = random_.permutation(static_cast<int64_t>(counted_.size()));
    DrawnPositions draw;
    for (size_t i = 0; i < counted_.size(); ++i) {
      const size_t row = counted_[i];
      for (const int64_t t : targets_.positions[counted_[static_cast<size_t>(order[i])]])
        if (t <= rows_.query[row] && !is_target_of_any(rows_, row, t)) draw.positions.push_back(t);
      draw.end_row();
    }
    return draw;
  }

  DrawnPositions uniform_draw() {
    DrawnPositions draw;
    for (const size_t row : counted_) {
      int64_t t;
      do {
        t = random_.integer(1, rows_.query[row]);
      } while (is_target_of_any(rows_, row, t));
      draw.positions.push_back(t);
      draw.end_row();
    }
    return draw;
  }

  const ScreenRows& rows_;
  const ScreenTargets& targets_;
  RandomState random_;
  std::vector<size_t> counted_;
  std::vector<DrawnPositions> draws_;
};

/// A head's selectivity on its targets, and on those of each draw.
HeadNull null_of_head(const ScreenRows& rows, const DrawnTargets& drawn,
                      const HeadWeights& attention, std::vector<double>& pooled) {
  double target = 0, control = 0;
  std::vector<double> controls;
  for (const size_t row : drawn.counted()) {
    target += attention.mean(row, drawn.targets().positions[row]);
    controls.push_back(attention.mean(row, rows.controls[row]));
    control += controls.back();
  }
  const auto counted = static_cast<double>(drawn.counted().size());
  HeadNull head;
  head.selectivity = ratio_of_means(target / counted, control / counted);
  std::vector<double> values = drawn.selectivities(attention, controls);
  const bool finite =
      std::isfinite(head.selectivity) &&
      std::all_of(values.begin(), values.end(), [](double value) { return std::isfinite(value); });
  if (!finite) return {};
  pooled.insert(pooled.end(), values.begin(), values.end());
  head.null = distribution_of(std::move(values));
  head.ratio = head.selectivity / std::max(head.null.max, kLeastControlMass);
  return head;
}

}  // namespace

const char* to_string(NullTargets targets) {
  return targets == NullTargets::kPermuted ? "permuted" : "uniform";
}

SelectivityNull calibrate_selectivity_null(const ScreenRows& rows, size_t pattern, int64_t heads,
                                           const HeadAttention& attention,
                                           const SelectivityNullOptions& options) {
  if (options.draws < 1)
    refuse_calibration("draws must be at least 1, got " + std::to_string(options.draws));
  if (pattern >= rows.patterns.size())
    refuse_calibration("pattern " + std::to_string(pattern) + " asked of rows that have " +
                       std::to_string(rows.patterns.size()));
  const DrawnTargets drawn(rows, pattern, options);
  SelectivityNull null;
  null.pattern = drawn.targets().pattern;
  null.options = options;
  null.rows = static_cast<int64_t>(drawn.counted().size());
  std::vector<double> pooled;
  for (int64_t h = 0; h < heads; ++h) {
    const HeadWeights weights(rows, attention(static_cast<size_t>(h)));
    null.heads.push_back(null_of_head(rows, drawn, weights, pooled));
  }
  null.pooled = distribution_of(std::move(pooled));
  if (!std::isnan(null.pooled.p99))
    null.recall_threshold = std::max(kLeastRecallThreshold, null.pooled.p99);
  return null;
}

RatioNull calibrate_ratio_null(const RatioSample& real, const RatioSample& null) {
  if (real.samples != null.samples)
    refuse_calibration(
        "participation ratios over N = " + std::to_string(real.samples) +
        " rows cannot be compared with a null over N = " + std::to_string(null.samples) +
        ", the ratio grows with N; measure both over the same number of rows");
  const auto& ratios = real.participation_ratios;
  if (ratios.size() != null.participation_ratios.size())
    refuse_calibration(std::to_string(ratios.size()) + " heads cannot be compared with " +
                       std::to_string(null.participation_ratios.size()));
  std::vector<double> measured, of_null;
  for (size_t h = 0; h < ratios.size(); ++h) {
    if (!std::isfinite(ratios[h]) || !std::isfinite(null.participation_ratios[h])) continue;
    measured.push_back(ratios[h]);
    of_null.push_back(null.participation_ratios[h]);
  }
  RatioNull result;
  result.samples = real.samples;
  result.heads = static_cast<int64_t>(measured.size());
  result.null = distribution_of(of_null);
  for (size_t h = 0; h < measured.size(); ++h) {
    result.above_max += measured[h] > result.null.max;
    result.above_p99 += measured[h] > result.null.p99;
    result.above_p95 += measured[h] > result.null.p95;
    result.above_own += measured[h] > of_null[h];
  }
  return result;
}

}  // namespace headscope
