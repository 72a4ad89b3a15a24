#include "headscope/spectrum.h"

#include <algorithm>
#include <cmath>

#include "headscope/snapshot.h"

namespace headscope {
namespace {

constexpr double kGuard = 1e-12;  // the reference's, in both places of the formula

bool measurable(std::span<const double> eigenvalues) {
  return !eigenvalues.empty() && std::all_of(eigenvalues.begin(), eigenvalues.end(),
                                             [](double value) { return std::isfinite(value); });
}

double sum_of(std::span<const double> eigenvalues) {
  double sum = 0;
  for (const double value : eigenvalues) sum += std::max(value, 0.0);
  return sum;
}

}  // namespace

double participation_ratio(std::span<const double> eigenvalues) {
  if (!measurable(eigenvalues)) return kNaN;
  const double total = std::max(sum_of(eigenvalues), kGuard);
  double entropy = 0;
  for (const double value : eigenvalues) {
    const double p = std::max(value, 0.0) / total;
    entropy -= p * std::log(p + kGuard);
  }
  return std::exp(entropy);
}

double participation_ratio_quadratic(std::span<const double> eigenvalues) {
  if (!measurable(eigenvalues)) return kNaN;
  // Scaled by the largest, so that neither square leaves the range of double.
  const double largest = *std::max_element(eigenvalues.begin(), eigenvalues.end());
  if (largest <= 0) return 1;
  double sum = 0, squares = 0;
  for (const double value : eigenvalues) {
    const double scaled = std::max(value, 0.0) / largest;
    sum += scaled;
    squares += scaled * scaled;
  }
  return sum * sum / squares;
}

}  // namespace headscope
