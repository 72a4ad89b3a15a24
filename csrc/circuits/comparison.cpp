#include "headscope/comparison.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace headscope {
namespace {

/// Ranks from 1; equal values share the mean of theirs.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double mean = static_cast<double>(begin + 1 + end) / 2;
    for (; begin < end; ++begin) result[order[begin]] = mean;
  }
  return result;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  const double n = static_cast<double>(a.size());
  const double mean_a = std::accumulate(a.begin(), a.end(), 0.) / n;
  const double mean_b = std::accumulate(b.begin(), b.end(), 0.) / n;
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean_a) * (b[i] - mean_b);
    aa += (a[i] - mean_a) * (a[i] - mean_a);
    bb += (b[i] - mean_b) * (b[i] - mean_b);
  }
  return aa > 0 && bb > 0 ? ab / std::sqrt(aa * bb) : kNaN;
}

/// ln (n choose k).
double ln_choose(int64_t n, int64_t k) {
  const auto ln_factorial = [](int64_t i) { return std::lgamma(static_cast<double>(i) + 1); };
  return ln_factorial(n) - ln_factorial(k) - ln_factorial(n - k);
}

}  // namespace

double jaccard(std::span<const HeadId> a, std::span<const HeadId> b) {
  const std::set<HeadId> first(a.begin(), a.end()), second(b.begin(), b.end());
  const auto common =
      std::count_if(first.begin(), first.end(), [&](HeadId id) { return second.contains(id); });
  const auto all = std::ssize(first) + std::ssize(second) - common;
  return all == 0 ? 1 : static_cast<double>(common) / static_cast<double>(all);
}

double expected_jaccard(int64_t a, int64_t b, int64_t heads) {
  if (a < 0 || b < 0 || a > heads || b > heads)
    throw std::invalid_argument("sets of " + std::to_string(a) + " and " + std::to_string(b) +
                                " out of " + std::to_string(heads) + " heads");
  if (a + b == 0) return 1;
  double expected = 0;
  for (int64_t k = std::max<int64_t>(1, a + b - heads); k <= std::min(a, b); ++k)
    expected += std::exp(ln_choose(a, k) + ln_choose(heads - a, b - k) - ln_choose(heads, b)) *
                static_cast<double>(k) / static_cast<double>(a + b - k);
  return expected;
}

double spearman(std::span<const double> a, std::span<const double> b) {
  if (a.size() != b.size())
    throw std::invalid_argument("spearman: " + std::to_string(a.size()) + " values against " +
                                std::to_string(b.size()));
  std::vector<double> first, second;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
    first.push_back(a[i]);
    second.push_back(b[i]);
  }
  constexpr size_t kFewest = 3;
  return first.size() < kFewest ? kNaN : correlation(ranks(first), ranks(second));
}

}  // namespace headscope
