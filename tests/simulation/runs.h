#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iomanip>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace headscope::simulation {

/// P(X <= k) of a binomial variable, summed exactly.
inline double binomial_at_most(int64_t k, int64_t n, double p) {
  double sum = 0;
  for (int64_t i = 0; i <= k; ++i)
    sum += std::exp(
        std::lgamma(static_cast<double>(n) + 1) - std::lgamma(static_cast<double>(i) + 1) -
        std::lgamma(static_cast<double>(n - i) + 1) + static_cast<double>(i) * std::log(p) +
        static_cast<double>(n - i) * std::log1p(-p));
  return sum;
}

/// So many of so many runs.
struct Share {
  int64_t hits = 0, runs = 0;

  /// Ends of the exact (Clopper-Pearson) 95 % interval.
  double low() const {
    return hits == 0 ? 0 : end([&](double p) { return 1 - binomial_at_most(hits - 1, runs, p); });
  }
  double high() const { return hits == runs ? 1 : 1 - Share{runs - hits, runs}.low(); }
  /// "3 of 200: 1.5 % [0.3, 4.3]"
  std::string text() const {
    std::ostringstream out;
    out << hits << " of " << runs << ": " << std::fixed << std::setprecision(1)
        << 100. * static_cast<double>(hits) / static_cast<double>(runs) << " % [" << 100 * low()
        << ", " << 100 * high() << "]";
    return out.str();
  }

 private:
  /// Where the rising function crosses 2.5 %.
  template <typename Rising>
  static double end(Rising tail) {
    double low = 0, high = 1;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (tail(middle) < .025 ? low : high) = middle;
    }
    return low;
  }
};

/// HEADSCOPE_RUNS=n asks for n runs of each case, to look closer at one or more coarsely at all.
inline int64_t runs_or(int64_t by_default) {
  const char* asked = std::getenv("HEADSCOPE_RUNS");
  return asked ? std::max(1L, std::atol(asked)) : by_default;
}

/// Calls run(0) .. run(runs - 1) on `threads` threads.
inline void each_run(int64_t runs, int threads, const std::function<void(int64_t)>& run) {
  std::atomic<int64_t> next{0};
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t)
    pool.emplace_back([&] {
      for (int64_t i = next++; i < runs; i = next++) run(i);
    });
  for (std::thread& thread : pool) thread.join();
}

/// The rows of one Markdown table, printed when all tests of the program are done.
class Table : public ::testing::Environment {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  void TearDown() override {
    for (size_t i = 0; i < rows_.size(); ++i) {
      for (const std::string& cell : rows_[i]) std::cout << "| " << cell << " ";
      std::cout << "|\n";
      if (i > 0) continue;
      for (size_t c = 0; c < rows_[0].size(); ++c) std::cout << "| --- ";
      std::cout << "|\n";
    }
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace headscope::simulation
