#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.cuh"
#include "kernels/launch.h"
#include "tests/emulation/emulated.h"
#include "tests/emulation/plain_reference.h"

namespace headscope::kernels {
namespace {

using emulation::Buffer;
using Matrix = std::vector<double>;  // [n, n] row-major; entries are exact floats

constexpr std::size_t kGuard = 16;
constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::size_t cell(int n, int i, int j) {
  return static_cast<std::size_t>(i) * static_cast<std::size_t>(n) + static_cast<std::size_t>(j);
}

/// sum over samples of x x^T with x_i = weight(i) (normal + offset): a second moment.
Matrix gram_matrix(int n, int samples, const std::function<double(int)>& weight, unsigned seed,
                   double offset = 0) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Matrix a(cell(n, n, 0));
  std::vector<double> x(static_cast<std::size_t>(n));
  for (int s = 0; s < samples; ++s) {
    for (int i = 0; i < n; ++i)
      x[static_cast<std::size_t>(i)] = weight(i) * (normal(random) + offset);
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j)
        a[cell(n, i, j)] += x[static_cast<std::size_t>(i)] * x[static_cast<std::size_t>(j)];
    }
  }
  for (double& value : a) value = static_cast<double>(static_cast<float>(value));
  return a;
}

Matrix diagonal_matrix(int n, const std::function<double(int)>& value) {
  Matrix a(cell(n, n, 0));
  for (int i = 0; i < n; ++i) a[cell(n, i, i)] = static_cast<double>(static_cast<float>(value(i)));
  return a;
}

double one(int) { return 1; }

/// Spectra that break eigenvalue solvers, by name.
struct Spectrum {
  const char* name;
  Matrix (*make)(int n);
};

const Spectrum kSpectra[] = {
    {"random Gram", [](int n) { return gram_matrix(n, 2 * n, one, 1); }},
    {"graded",
     [](int n) {
       return gram_matrix(
           n, 2 * n, [n](int i) { return std::pow(10.0, -6.0 * i / n); }, 2);
     }},
    {"spiked, lambda1 / sum .999", [](int n) { return gram_matrix(n, 2 * n, one, 5, 32.0); }},
    {"low rank", [](int n) { return gram_matrix(n, 3, one, 4); }},
    {"graded upwards",
     [](int n) {
       return gram_matrix(
           n, 2 * n, [n](int i) { return std::pow(10.0, 6.0 * (i + 1) / n); }, 3);
     }},
    {"flat", [](int n) { return diagonal_matrix(n, [](int) { return 3.0; }); }},
    {"nearly flat", [](int n) { return gram_matrix(n, 64 * n, one, 6); }},
    {"zero", [](int n) { return diagonal_matrix(n, [](int) { return 0.0; }); }},
    // Its points of multisection are eigenvalues: pivots become zero.
    {"diagonal",
     [](int n) { return diagonal_matrix(n, [](int i) { return (i * 7) % 16 - 8.0; }); }},
    {"indefinite",
     [](int n) {
       Matrix a = gram_matrix(n, 2, one, 7);
       for (int i = 0; i < n; ++i)
         for (int j = 0; j < n; ++j) a[cell(n, i, j)] *= (i + j) % 3 == 0 ? 1 : -1;
       return a;
     }},
    {"ones", [](int n) { return Matrix(cell(n, n, 0), 1.0); }},
};

/// Matrices of one size in groups, as the launcher takes them: the strictly upper triangle, the
/// padding of rows and the space between matrices are NaN; outputs end in guards.
class Problem {
 public:
  Problem(int n, const std::vector<std::vector<Matrix>>& groups, int leading_padding = 0,
          int gap = 0)
      : n_(n) {
    for (const auto& matrices : groups) {
      const int64_t leading = n + leading_padding, stride = leading * n + gap;
      auto buffer =
          std::make_unique<Buffer<float>>(static_cast<std::size_t>(stride) * matrices.size());
      for (std::size_t m = 0; m < matrices.size(); ++m) {
        float* const data = buffer->data() + static_cast<int64_t>(m) * stride;
        for (int i = 0; i < n; ++i) {
          for (int j = 0; j <= i; ++j)
            data[i * leading + j] = static_cast<float>(matrices[m][cell(n, i, j)]);
        }
      }
      groups_.push_back({buffer->data(), stride, leading, static_cast<int>(matrices.size())});
      buffers_.push_back(std::move(buffer));
      total_ += matrices.size();
    }
    values_ = std::make_unique<Buffer<double>>(total_ * static_cast<std::size_t>(n) + kGuard);
    trace_ = std::make_unique<Buffer<double>>(total_ + kGuard);
    square_ = std::make_unique<Buffer<double>>(total_ + kGuard);
    finite_ = std::make_unique<Buffer<uint8_t>>(total_ + kGuard);
  }

  void run() {
    const EigenvalueOutputs out = {values_->data(), trace_->data(), square_->data(),
                                   finite_->data()};
    ASSERT_EQ(launch_symmetric_eigenvalues(groups_.data(), static_cast<int>(groups_.size()), n_,
                                           out, nullptr),
              0);
    const std::vector<unsigned char> untouched(kGuard * sizeof(double), 0xFF);
    for (const auto* buffer : {values_.get(), trace_.get(), square_.get()}) {
      EXPECT_EQ(
          std::memcmp(buffer->data() + buffer->size() - kGuard, untouched.data(), untouched.size()),
          0);
    }
    EXPECT_EQ(std::memcmp(finite_->data() + total_, untouched.data(), kGuard), 0);
  }

  double value(std::size_t matrix, int i) const {
    return (*values_)[matrix * static_cast<std::size_t>(n_) + static_cast<std::size_t>(i)];
  }
  std::vector<double> values() const {
    return {values_->data(), values_->data() + total_ * static_cast<std::size_t>(n_)};
  }
  double trace(std::size_t matrix) const { return (*trace_)[matrix]; }
  double square(std::size_t matrix) const { return (*square_)[matrix]; }
  bool is_finite(std::size_t matrix) const { return (*finite_)[matrix] == 1; }

 private:
  int n_;
  std::size_t total_ = 0;
  std::vector<std::unique_ptr<Buffer<float>>> buffers_;
  std::vector<EigenvalueGroup> groups_;
  std::unique_ptr<Buffer<double>> values_, trace_, square_;
  std::unique_ptr<Buffer<uint8_t>> finite_;
};

/// Of the largest eigenvalue. Householder's backward error grows like sqrt(n) eps in practice;
/// goals.md allows 2e-6 at n = 64 and 3e-6 at 128, which 2e-7 sqrt(n) and a few roundings stay
/// within.
double tolerance(int n) { return 4e-7 + 2e-7 * std::sqrt(static_cast<double>(n)); }

void expect_eigenvalues(const Problem& problem, std::size_t m, const Matrix& matrix, int n,
                        const std::string& what) {
  const std::vector<double> want = reference::plain_eigenvalues(matrix, n);
  const double largest = std::max(std::abs(want.front()), std::abs(want.back()));
  double trace = 0, square = 0;
  for (int i = 0; i < n; ++i) {
    const double got = problem.value(m, i);
    const double error = std::abs(got - want[static_cast<std::size_t>(i)]);
    EXPECT_TRUE(error <= tolerance(n) * largest)
        << what << ", n " << n << ": eigenvalue " << i << " is " << got << ", want "
        << want[static_cast<std::size_t>(i)] << ", largest " << largest;
    EXPECT_TRUE(i == 0 || got >= problem.value(m, i - 1)) << what << " descends at " << i;
    trace += matrix[cell(n, i, i)];
    for (int j = 0; j < n; ++j) {
      const double entry = matrix[cell(n, std::max(i, j), std::min(i, j))];
      square += entry * entry;
    }
  }
  // Summed in double from exact terms, n of them and n^2.
  EXPECT_TRUE(std::abs(problem.trace(m) - trace) <= 0x1p-53 * n * n * largest) << what;
  EXPECT_TRUE(std::abs(problem.square(m) - square) <= 0x1p-53 * n * n * square) << what;
  EXPECT_TRUE(problem.is_finite(m)) << what;
}

class SymmetricEigenvalues : public ::testing::TestWithParam<int> {};

TEST_P(SymmetricEigenvalues, MatchesJacobiOnHardSpectra) {
  const int n = GetParam();
  std::vector<Matrix> matrices;
  for (const Spectrum& spectrum : kSpectra) {
    // Large ones are slow to emulate and to check, all of them in a race-checked build.
    if (matrices.size() == (n > 129 || emulation::kIsRaceChecked ? 1u : n > 65 ? 4u : 11u)) break;
    matrices.push_back(spectrum.make(n));
  }
  Problem problem(n, {matrices}, /*leading_padding=*/n % 3, /*gap=*/n % 5);
  problem.run();
  for (std::size_t m = 0; m < matrices.size(); ++m)
    expect_eigenvalues(problem, m, matrices[m], n, kSpectra[m].name);
}

std::vector<int> sizes() {
  if (emulation::kIsRaceChecked) return {1, 3, 32, 33, 65, 129};
  return {1, 2, 3, 16, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 256};
}

INSTANTIATE_TEST_SUITE_P(Sizes, SymmetricEigenvalues, ::testing::ValuesIn(sizes()));

TEST(SymmetricEigenvaluesOrder, OfThreadsDoesNotChangeABit) {
  for (const int n : {31, 64, 100}) {
    Problem problem(n, {{kSpectra[0].make(n), kSpectra[1].make(n)}});
    std::vector<double> first;
    for (const emulation::ThreadOrder& order : emulation::thread_orders()) {
      const emulation::OrderScope scope(order);
      problem.run();
      if (first.empty()) first = problem.values();
      EXPECT_EQ(problem.values(), first) << "n " << n << ", order " << order.name;
    }
  }
}

TEST(SymmetricEigenvaluesScale, PowersOfTwoChangeNoBitOfTheFigures) {
  const int n = 33;
  // Quarters below 128: every scaled entry is exact, among denormals, too.
  Matrix base = kSpectra[0].make(n);
  for (double& value : base) value = std::nearbyint(value * 4) / 4;
  const int exponents[] = {-140, -120, 0, 60, 120};
  std::vector<Matrix> scaled;
  for (const int exponent : exponents) {
    scaled.push_back(base);
    for (double& value : scaled.back()) value = std::ldexp(value, exponent);
  }
  Problem problem(n, {scaled});
  problem.run();
  for (std::size_t m = 0; m < scaled.size(); ++m) {
    for (int i = 0; i < n; ++i)
      EXPECT_EQ(std::ldexp(problem.value(m, i), -exponents[m]), problem.value(2, i)) << m;
    EXPECT_EQ(std::ldexp(problem.trace(m), -exponents[m]), problem.trace(2));
    EXPECT_EQ(std::ldexp(problem.square(m), -2 * exponents[m]), problem.square(2));
  }
}

TEST(SymmetricEigenvaluesScale, LargestFloatsDoNotOverflow) {
  const int n = 64;
  const double entry = static_cast<double>(3e38f);
  Problem problem(n, {{Matrix(cell(n, n, 0), entry)}});
  problem.run();
  EXPECT_TRUE(std::abs(problem.value(0, n - 1) / (n * entry) - 1) <= tolerance(n));
}

TEST(SymmetricEigenvaluesExact, MultiplesOfTheIdentityAndSizeOne) {
  for (const int n : {1, 2, 32, 65}) {
    Problem problem(n, {{diagonal_matrix(n, [](int) { return -3.0; }),
                         diagonal_matrix(n, [](int) { return 0.0; }),
                         diagonal_matrix(n, [](int) { return 0.1; })}});
    problem.run();
    for (int i = 0; i < n; ++i) {
      EXPECT_EQ(problem.value(0, i), -3.0);
      EXPECT_EQ(problem.value(1, i), 0.0);
      EXPECT_EQ(problem.value(2, i), static_cast<double>(0.1f));
    }
    EXPECT_EQ(problem.trace(0), -3.0 * n);
    EXPECT_EQ(problem.square(0), 9.0 * n);
  }
}

TEST(SymmetricEigenvaluesNotFinite, FlagsItsMatrixAndNoOther) {
  const int n = 33;
  const Matrix good = kSpectra[0].make(n);
  const auto spoilt = [&](int i, int j, double value) {
    Matrix a = good;
    a[cell(n, i, j)] = value;
    return a;
  };
  const std::vector<Matrix> matrices = {
      good, spoilt(32, 0, kNaN),     good, spoilt(32, 32, -kInfinity),
      good, spoilt(0, 0, kInfinity), good, spoilt(31, 30, -kNaN)};
  Problem problem(n, {matrices});
  problem.run();
  for (std::size_t m = 0; m < matrices.size(); ++m) {
    if (m % 2 == 0) {
      expect_eigenvalues(problem, m, good, n, "beside NaN");
      continue;
    }
    EXPECT_FALSE(problem.is_finite(m)) << m;
    for (int i = 0; i < n; ++i) EXPECT_TRUE(std::isnan(problem.value(m, i))) << m << " " << i;
    EXPECT_TRUE(std::isnan(problem.trace(m)) && std::isnan(problem.square(m)));
  }
}

TEST(SymmetricEigenvaluesGroups, MoreThanOneLaunchAndEmptyGroups) {
  const int n = 3;
  std::vector<std::vector<Matrix>> groups;
  std::vector<Matrix> all;
  for (int g = 0; g < 67; ++g) {
    groups.emplace_back();
    for (int m = 0; m < g % 3; ++m) {
      groups.back().push_back(gram_matrix(n, 4, one, static_cast<unsigned>(3 * g + m)));
      all.push_back(groups.back().back());
    }
  }
  Problem problem(n, groups, 1, 2);
  problem.run();
  for (std::size_t m = 0; m < all.size(); ++m)
    expect_eigenvalues(problem, m, all[m], n, "group member");
}

TEST(SymmetricEigenvaluesLauncher, RefusesWhatItCannotDo) {
  Buffer<float> matrix(16);
  Buffer<double> values(4);
  const EigenvalueOutputs out = {values.data(), nullptr, nullptr, nullptr};
  const auto launch = [&](EigenvalueGroup group, int n) {
    return launch_symmetric_eigenvalues(&group, 1, n, out, nullptr);
  };
  EXPECT_EQ(launch({matrix.data(), 16, 4, 1}, 257), kInvalidValue);
  EXPECT_EQ(launch({matrix.data(), 16, 4, 1}, -1), kInvalidValue);
  EXPECT_EQ(launch({matrix.data(), 16, 3, 1}, 4), kInvalidValue);
  EXPECT_EQ(launch({matrix.data(), 16, 4, -1}, 4), kInvalidValue);
  EXPECT_EQ(launch({matrix.data(), 16, 4, 0}, 4), 0);
  EXPECT_EQ(launch({matrix.data(), 16, 4, 1}, 0), 0);
  EXPECT_TRUE(std::isnan(values[3]));  // nothing written so far
  matrix.zero();
  EXPECT_EQ(launch({matrix.data(), 16, 4, 1}, 4), 0);  // without the other outputs
  EXPECT_EQ(values[3], 0.0);
}

}  // namespace
}  // namespace headscope::kernels
