#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <string>

#include "csrc/circuits/intervals.h"
#include "headscope/null_test.h"
#include "headscope/snapshot.h"

namespace headscope {
namespace {

constexpr size_t kFewestClusters = 4;
// A margin that never varies is known to rounding alone.
constexpr double kConstantMargin = 1e-9;

void validate(const MarginTable& table, double floor, double alpha) {
  const auto fail = [](const std::string& what) {
    throw std::invalid_argument("effect_bound_test: " + what);
  };
  if (table.heads < 0 || table.references < 1)
    fail(std::to_string(table.heads) + " heads against " + std::to_string(table.references) +
         " references");
  if (table.row.size() != table.position.size())
    fail(std::to_string(table.row.size()) + " rows for " + std::to_string(table.position.size()) +
         " positions");
  const size_t expected = table.row.size() * static_cast<size_t>(table.references * table.heads);
  if (table.values.size() != expected)
    fail(std::to_string(table.values.size()) +
         " values, but observations * references * heads = " + std::to_string(expected));
  if (!(alpha > 0 && alpha < 1))
    fail("alpha is " + std::to_string(alpha) + ", give a level above 0 and below 1");
  if (!std::isfinite(floor)) fail("the floor is not finite");
}

/// Numbers the clusters of a labelling from 0.
struct Clusters {
  explicit Clusters(const std::vector<int32_t>& labels) {
    std::map<int32_t, size_t> numbers;
    for (const int32_t label : labels)
      of.push_back(numbers.try_emplace(label, numbers.size()).first->second);
    count = numbers.size();
  }
  std::vector<size_t> of;
  size_t count = 0;
};

/// Variance of the mean of values whose members of a cluster may have anything in common.
double clustered_variance(const std::vector<double>& values, double mean,
                          const Clusters& clusters) {
  std::vector<double> sums(clusters.count, 0);
  for (size_t i = 0; i < values.size(); ++i) sums[clusters.of[i]] += values[i] - mean;
  double squares = 0;
  for (const double sum : sums) squares += sum * sum;
  const auto n = static_cast<double>(values.size()), groups = static_cast<double>(clusters.count);
  return squares / (n * n) * groups / (groups - 1);
}

/// The values of one head against one reference; empty: NaN or +inf among them, or none finite.
std::vector<double> column(const MarginTable& table, size_t reference, size_t head) {
  const auto heads = static_cast<size_t>(table.heads);
  const auto references = static_cast<size_t>(table.references);
  std::vector<double> values;
  double smallest = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < table.row.size(); ++i) {
    const float value = table.values[(i * references + reference) * heads + head];
    if (std::isnan(value) || value > std::numeric_limits<float>::max()) return {};
    values.push_back(static_cast<double>(value));
    if (std::isfinite(value)) smallest = std::min(smallest, values.back());
  }
  if (!std::isfinite(smallest)) return {};
  for (double& value : values) value = std::isfinite(value) ? value : smallest;
  return values;
}

}  // namespace

NullTestResult effect_bound_test(const MarginTable& table, double floor, double alpha) {
  validate(table, floor, alpha);
  const auto heads = static_cast<size_t>(table.heads);
  NullTestResult result;
  result.alpha = alpha;
  result.z.assign(heads, kNaN);
  result.excess.assign(heads, kNaN);
  result.beats.assign(heads, false);
  result.critical_z = kNaN;
  const Clusters rows(table.row), positions(table.position);
  const size_t clusters = std::min(rows.count, positions.count);
  result.rows = static_cast<int64_t>(rows.count);
  if (clusters < kFewestClusters || heads == 0) return result;

  bool any = false;
  for (size_t head = 0; head < heads; ++head) {
    double least_z = std::numeric_limits<double>::infinity(), least_mean = least_z;
    for (size_t r = 0; r < static_cast<size_t>(table.references); ++r) {
      const std::vector<double> values = column(table, r, head);
      const double mean = circuits::mean(values);
      const double variance =
          clustered_variance(values, mean, rows) + clustered_variance(values, mean, positions);
      const double se = std::max(std::sqrt(variance), kConstantMargin * std::abs(mean - floor));
      const double z = se > 0 ? (mean - floor) / se : (std::isnan(mean) ? kNaN : 0.0);
      least_z = std::isnan(z) || std::isnan(least_z) ? kNaN : std::min(least_z, z);
      least_mean = std::isnan(mean) ? kNaN : std::min(least_mean, mean);
    }
    if (std::isnan(least_z)) continue;
    result.z[head] = least_z;
    result.excess[head] = least_mean;
    result.max_z = any ? std::max(result.max_z, least_z) : least_z;
    any = true;
  }
  if (!any) return result;
  const auto freedom = static_cast<double>(clusters - 1), family = static_cast<double>(heads);
  result.critical_z = circuits::student_quantile(std::min(alpha / family, 0.5), freedom);
  result.p_value = std::min(1.0, family * circuits::student_tail(result.max_z, freedom));
  for (size_t head = 0; head < heads; ++head)
    result.beats[head] = result.z[head] > result.critical_z;
  result.significant = result.max_z > result.critical_z;
  return result;
}

}  // namespace headscope
