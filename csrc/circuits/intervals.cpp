#include "csrc/circuits/intervals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <vector>

namespace headscope::circuits {
namespace {

/// Regularised incomplete beta I_x(a, b) by its continued fraction (Lentz), for x <= (a + 1) / (a +
/// b + 2), where it converges fast.
double beta_fraction(double a, double b, double x) {
  constexpr double kTiny = 1e-300, kEnough = 1e-15;
  const auto away_from_zero = [](double v) { return std::abs(v) < kTiny ? kTiny : v; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m < 10000; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    fraction *= c * d;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    fraction *= c * d;
    if (std::abs(c * d - 1) < kEnough) break;
  }
  const double front = std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) +
                                a * std::log(x) + b * std::log1p(-x));
  return front * fraction / a;
}

/// Linear interpolation between order statistics, as numpy's default.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(place);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (place - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

double normal_tail(double z) { return 0.5 * std::erfc(z / std::numbers::sqrt2); }

}  // namespace

double mean(std::span<const double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double student_tail(double t, double freedom) {
  if (t < 0) return 1 - student_tail(-t, freedom);
  if (t == 0) return 0.5;
  const double a = freedom / 2, b = 0.5, x = freedom / (freedom + t * t);
  if (x <= (a + 1) / (a + b + 2)) return 0.5 * beta_fraction(a, b, x);
  return 0.5 * (1 - beta_fraction(b, a, t * t / (freedom + t * t)));
}

double student_quantile(double tail, double freedom) {
  double low = 0, high = 1;
  while (student_tail(high, freedom) > tail && high < 1e150) {
    low = high;
    high *= 2;
  }
  for (int i = 0; i < 200 && high - low > 1e-12 * high; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle, freedom) > tail ? low : high) = middle;
  }
  return (low + high) / 2;
}

Interval bootstrap_interval(size_t examples, double confidence, int64_t resamples, uint64_t seed,
                            const std::function<double(std::mt19937_64&)>& draw) {
  std::mt19937_64 engine(seed);
  std::vector<double> means(static_cast<size_t>(resamples));
  for (double& resampled : means) resampled = draw(engine);
  std::sort(means.begin(), means.end());
  const auto n = static_cast<double>(examples);
  const double t = student_quantile((1 - confidence) / 2, n - 1);
  const double tail = normal_tail(std::sqrt(n / (n - 1)) * t);
  return {quantile(means, tail), quantile(means, 1 - tail)};
}

}  // namespace headscope::circuits
