#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "csrc/measure/cpu/symmetric_eigenvalues.h"
#include "csrc/measure/simd/symmetric_eigenvalues.h"
#include "headscope/measure.h"
#include "headscope/spectrum.h"
#include "tests/support/numeric/hostile.h"

namespace headscope {
namespace {

using simd::SolveState;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble);
}

at::Tensor gram(int64_t n, int64_t samples, uint64_t seed) {
  const at::Tensor x = normal({samples, n}, seed);
  return x.t().matmul(x);
}

at::Tensor of_spectrum(const at::Tensor& eigenvalues, uint64_t seed) {
  const int64_t n = eigenvalues.size(0);
  const at::Tensor q = std::get<0>(at::linalg_qr(normal({n, n}, seed)));
  return (q * eigenvalues).matmul(q.t());
}

/// One direction holds `share` of the trace, the others as much as each other of the rest.
at::Tensor spike(int64_t n, double share) {
  at::Tensor values = at::full({n}, (1 - share) / std::max<double>(1, static_cast<double>(n - 1)),
                               at::TensorOptions().dtype(at::kDouble));
  values[n - 1] = share;
  return values;
}

using Spectrum = std::function<at::Tensor(int64_t n, uint64_t seed)>;

at::Tensor to_largest(const at::Tensor& matrix, double largest) {
  return matrix / matrix.abs().max() * largest;
}

const std::vector<Spectrum>& spectra() {
  static const std::vector<Spectrum> all = {
      [](int64_t n, uint64_t seed) { return gram(n, 2 * n, seed); },
      [](int64_t n, uint64_t) { return at::eye(n, at::kDouble); },
      [](int64_t n, uint64_t seed) {  // graded
        const at::Tensor scales = at::logspace(0, -12, n, 10.0, at::kDouble);
        return gram(n, 2 * n, seed) * scales.view({-1, 1}) * scales;
      },
      [](int64_t n, uint64_t seed) {  // graded the other way
        const at::Tensor scales = at::logspace(-12, 0, n, 10.0, at::kDouble);
        return gram(n, 2 * n, seed) * scales.view({-1, 1}) * scales;
      },
      [](int64_t n, uint64_t seed) { return gram(n, 1, seed); },
      [](int64_t n, uint64_t seed) { return gram(n, (n + 1) / 2, seed); },
      [](int64_t n, uint64_t seed) { return of_spectrum(spike(n, .999), seed); },
      [](int64_t n, uint64_t seed) {  // three clusters
        const at::Tensor jitter = normal({n}, seed + 1) * 1e-9;
        return of_spectrum(at::arange(n, at::kDouble).remainder(3) + jitter, seed);
      },
      [](int64_t n, uint64_t seed) { return normal({n}, seed).diag(); },
      [](int64_t n, uint64_t) {
        return at::zeros({n, n}, at::kDouble);
      },
      [](int64_t n, uint64_t seed) {  // tridiagonal
        const at::Tensor x = normal({n, n}, seed);
        return (x + x.t()).tril(1).triu(-1);
      },
      [](int64_t n, uint64_t seed) { return -gram(n, 2 * n, seed); },
      [](int64_t n, uint64_t seed) {  // indefinite
        const at::Tensor x = normal({n, n}, seed);
        return x + x.t();
      },
      // All ones but a zero diagonal: n - 1 equal eigenvalues and no trace to scale by.
      [](int64_t n, uint64_t) { return 1 - at::eye(n, at::kDouble); },
      // Entries of one magnitude round alike: the errors of the sums add up.
      [](int64_t n, uint64_t seed) {
        return at::ones({n, n}, at::kDouble) * normal({1}, seed);
      },
      [](int64_t n, uint64_t seed) {
        const at::Tensor signs = normal({n}, seed).sign();
        return signs.view({-1, 1}) * signs * normal({1}, seed + 1);
      },
      [](int64_t n, uint64_t seed) {  // equicorrelated
        const at::Tensor c = normal({2}, seed).abs();
        return c[0] + c[1] * at::eye(n, at::kDouble);
      },
      // Clusters of equal eigenvalues, exact but for rounding.
      [](int64_t n, uint64_t seed) { return gram(n, 1, seed) + 0.3 * at::eye(n, at::kDouble); },
      [](int64_t n, uint64_t seed) { return gram(n, 2, seed) + at::eye(n, at::kDouble); },
      [](int64_t n, uint64_t seed) { return to_largest(gram(n, 2 * n, seed), 3e38); },
      [](int64_t n, uint64_t seed) { return to_largest(gram(n, 2 * n, seed), 1e-37); },
      [](int64_t n, uint64_t seed) { return to_largest(gram(n, 2 * n, seed), 1e-42); },
  };
  return all;
}

/// [count, n, n]: the spectra in turn, so that unlike ones are neighbours.
at::Tensor mixed_batch(int64_t count, int64_t n, at::ScalarType type) {
  std::vector<at::Tensor> matrices;
  for (int64_t m = 0; m < count; ++m) {
    const auto kind = static_cast<size_t>(m) % spectra().size();
    matrices.push_back(spectra()[kind](n, static_cast<uint64_t>(1000 * n + m)).to(type));
  }
  return at::stack(matrices);
}

at::Tensor lapack(const at::Tensor& matrices) {
  const at::Tensor work = matrices.to(at::kDouble);
  const at::Tensor largest = work.abs().flatten(1).amax(1).clamp_min(1e-300).view({-1, 1});
  return at::linalg_eigvalsh(work / largest.unsqueeze(2), "L") * largest;
}

/// Relative to the largest magnitude of the spectrum. Householder's n reflectors each perturb the
/// matrix by some units of rounding, in the precision of the matrix: growth as sqrt n where their
/// directions have nothing to do with each other. Where entries are of one magnitude, the n terms
/// of a sum are rounded alike, each by up to half a unit. The QL sweeps, about 2 n, perturb it in
/// f64, with some 8 roundings a rotation.
double relative_bound(at::ScalarType type, int64_t n) {
  const double root = std::sqrt(static_cast<double>(n));
  return type == at::kFloat ? (16 + 2 * root + 0.5 * static_cast<double>(n)) * 0x1p-24
                            : (16 + 16 * root) * 0x1p-53;
}

at::Tensor bound_of(const at::Tensor& want, at::ScalarType type, int64_t n) {
  return (want.abs().amax(1, true) * relative_bound(type, n)).expand_as(want);
}

struct Solved {
  at::Tensor values;
  std::vector<SolveState> states;
};

/// Through raw pointers, the output between guards that must stay as they are.
template <typename T>
Solved solve_raw(const at::Tensor& matrices, int64_t max_sweeps) {
  const int64_t count = matrices.size(0), n = matrices.size(1), guard = 64;
  at::Tensor buffer = at::full({count * n + 2 * guard}, 12345.0, at::kDouble);
  Solved solved{buffer.narrow(0, guard, count * n).view({count, n}),
                std::vector<SolveState>(static_cast<size_t>(count))};
  const at::Tensor source = matrices.contiguous();
  simd::symmetric_eigenvalues(source.const_data_ptr<T>(), count, n, max_sweeps,
                              solved.values.data_ptr<double>(), solved.states.data());
  for (const int64_t at : {int64_t{0}, guard + count * n})
    EXPECT_TRUE(buffer.narrow(0, at, guard).eq(12345.0).all().item<bool>());
  return solved;
}

Solved solve(const at::Tensor& matrices, int64_t max_sweeps = -1) {
  const int64_t sweeps = max_sweeps < 0 ? simd::sweep_limit(matrices.size(1)) : max_sweeps;
  return matrices.scalar_type() == at::kFloat ? solve_raw<float>(matrices, sweeps)
                                              : solve_raw<double>(matrices, sweeps);
}

std::vector<int64_t> targets() {
  std::vector<int64_t> found;
  const int64_t supported = hwy::SupportedTargets() & simd::eigenvalue_targets();
  for (int bit = 0; bit < 63; ++bit) {
    if (supported >> bit & 1) found.push_back(int64_t{1} << bit);
  }
  return found;
}

/// Runs every test on one instruction set that this machine has.
class SimdEigenvalues : public ::testing::TestWithParam<std::tuple<int64_t, int64_t>> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(std::get<0>(GetParam())); }
  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
  int64_t n() const { return std::get<1>(GetParam()); }
};

TEST_P(SimdEigenvalues, MatchLapackInDoubleWhateverTheNeighbours) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    // Small ones fill all columns of the widest vectors, and start over.
    const int64_t matrices = n() <= 33 ? 51 : 25;
    const at::Tensor batch = mixed_batch(matrices, n(), type), want = lapack(batch);
    const Solved all = solve(batch);
    testing::expect_within(all.values, want, bound_of(want, type, n()));
    EXPECT_TRUE((all.values.diff(1, 1) >= 0).all().item<bool>());
    std::vector<int64_t> counts = {1, 9};
    if (n() <= 128) counts.insert(counts.end(), {2, 7, 8, 16, 17, 24});
    if (n() <= 33) counts.insert(counts.end(), {32, 33, 40, 41, 48, 49});
    for (const int64_t count : counts) {
      // From both ends: other lanes, other neighbours, the same bits.
      EXPECT_TRUE(solve(batch.narrow(0, 0, count)).values.equal(all.values.narrow(0, 0, count)));
      EXPECT_TRUE(solve(batch.narrow(0, matrices - count, count))
                      .values.equal(all.values.narrow(0, matrices - count, count)));
    }
    for (const SolveState state : all.states) EXPECT_EQ(state, SolveState::kSolved);
  }
}

TEST_P(SimdEigenvalues, LeaveTheNeighboursOfABadMatrixAlone) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor batch = mixed_batch(9, n(), type), clean = solve(batch).values;
    for (const double bad : {kNaN, kInf, -kInf}) {
      at::Tensor spoilt = batch.clone();
      // Below the diagonal, and above it.
      spoilt[4][n() - 1][n() / 2] = bad;
      spoilt[6][n() / 2][n() - 1] = bad;
      const Solved got = solve(spoilt);
      for (int64_t m = 0; m < 9; ++m) {
        const bool hit = m == 4 || m == 6;
        EXPECT_EQ(got.states[static_cast<size_t>(m)],
                  hit ? SolveState::kNotFinite : SolveState::kSolved);
        EXPECT_TRUE(hit ? got.values[m].isnan().all().item<bool>() : got.values[m].equal(clean[m]));
      }
    }
  }
}

TEST_P(SimdEigenvalues, AreOfTheLowerTriangle) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const at::Tensor batch = mixed_batch(3, n(), type);
    const at::Tensor upper = at::ones({n(), n()}, at::kBool).triu(1);
    EXPECT_TRUE(solve(batch.masked_fill(upper, 1e30)).values.equal(solve(batch).values));
  }
}

TEST_P(SimdEigenvalues, OfDiagonalMatricesAreExact) {
  const at::Tensor diagonal = (at::arange(n(), at::kFloat) * 37).remainder(101) - 50;
  EXPECT_TRUE(solve(diagonal.diag().unsqueeze(0))
                  .values[0]
                  .equal(std::get<0>(diagonal.to(at::kDouble).sort())));
}

// Below n = 8 one sweep may solve it.
class SimdEigenvaluesFromEight : public SimdEigenvalues {};

TEST_P(SimdEigenvaluesFromEight, ReportWhatDoesNotConverge) {
  const at::Tensor batch = at::stack({gram(n(), 2 * n(), 1), at::eye(n(), at::kDouble)});
  const Solved got = solve(batch, 1);
  EXPECT_EQ(got.states[0], SolveState::kNotConverged);
  EXPECT_EQ(got.states[1], SolveState::kSolved);
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<int64_t, int64_t>>& info) {
  return std::string(hwy::TargetName(std::get<0>(info.param))) + "_" +
         std::to_string(std::get<1>(info.param));
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdEigenvalues,
                         ::testing::Combine(::testing::ValuesIn(targets()),
                                            ::testing::Values(1, 2, 3, 7, 8, 16, 31, 32, 33, 63, 64,
                                                              65, 100, 127, 128, 129, 200, 256)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Targets, SimdEigenvaluesFromEight,
                         ::testing::Combine(::testing::ValuesIn(targets()),
                                            ::testing::Values(8, 16, 31, 32, 33, 63, 64, 65, 100,
                                                              127, 128, 129, 200, 256)),
                         name_of);

// Goal 6 in f32: 2e-6 and 3e-6 must, 1e-6 is the aim.
TEST(Eigenvalues, OfGramsInFloatReachTheAim) {
  for (const int64_t n : {64, 128}) {
    std::vector<at::Tensor> grams;
    for (uint64_t m = 0; m < 16; ++m) grams.push_back(gram(n, 2 * n, m).to(at::kFloat));
    const at::Tensor batch = at::stack(grams), want = lapack(batch);
    testing::expect_within(symmetric_eigenvalues(batch), want,
                           (want.amax(1, true) * 1e-6).expand_as(want));
  }
}

// Goal 6: what is read off the spectrum, on spectra that one direction dominates: 1e-5 for f32
// input. Its entropy weighs an error of the largest eigenvalue, some 2e-7, by ln of their ratio.
TEST(Eigenvalues, GiveTheParticipationRatioInFloat) {
  const auto ratios = [](const at::Tensor& values) {
    const at::Tensor row = values.contiguous();
    const std::span<const double> span(row.const_data_ptr<double>(),
                                       static_cast<size_t>(row.numel()));
    return std::pair(participation_ratio(span), participation_ratio_quadratic(span));
  };
  for (const int64_t n : {16, 64, 128}) {
    for (const double share : {0.1, 0.5, 0.9, 0.99, 0.999}) {
      const at::Tensor matrix = of_spectrum(spike(n, share), 5).to(at::kFloat);
      const auto got = ratios(symmetric_eigenvalues(matrix));
      const auto want = ratios(lapack(matrix.unsqueeze(0))[0]);
      EXPECT_NEAR(got.first / want.first, 1, 1e-5) << "entropy, n " << n << " share " << share;
      EXPECT_NEAR(got.second / want.second, 1, 1e-6) << "quadratic, n " << n << " share " << share;
    }
  }
}

TEST(Eigenvalues, BeyondTheKernelsAreLapacks) {
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    at::Tensor batch = mixed_batch(3, 300, type);
    const at::Tensor want = lapack(batch);
    batch[1][200][100] = kNaN;
    const at::Tensor got = symmetric_eigenvalues(batch);
    EXPECT_TRUE(got[1].isnan().all().item<bool>());
    for (const int64_t m : {0, 2}) {
      testing::expect_within(got[m], want[m],
                             want[m].abs().max() * relative_bound(at::kDouble, 300));
    }
  }
}

TEST(Eigenvalues, ThatDoNotConvergeAreLapacksAndCounted) {
  const at::Tensor batch = mixed_batch(3, 40, at::kFloat), want = lapack(batch);
  const int64_t before = cpu::eigenvalue_fallbacks();
  const at::Tensor got = cpu::symmetric_eigenvalues(batch, /*max_sweeps=*/1);
  EXPECT_EQ(cpu::eigenvalue_fallbacks() - before, 2);  // all but the identity
  testing::expect_within(got, want, bound_of(want, at::kDouble, 40));
}

TEST(Eigenvalues, AreTheSameOnAnyNumberOfThreadsAndInAnyLayout) {
  const at::Tensor batch = mixed_batch(100, 33, at::kFloat);
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor alone = symmetric_eigenvalues(batch);
  for (const int count : {2, 3, 7}) {
    at::set_num_threads(count);
    for (const int64_t first : {0, 4, 20, 40, 75, 91}) {
      EXPECT_TRUE(symmetric_eigenvalues(batch.slice(0, first)).equal(alone.slice(0, first)))
          << count << " threads from matrix " << first;
    }
  }
  at::set_num_threads(threads);
  at::Tensor padded = at::full({100, 35, 70}, kNaN, at::kFloat);
  at::Tensor view = padded.slice(1, 1, 34).slice(2, 2, 68, 2);
  view.copy_(batch);
  EXPECT_TRUE(symmetric_eigenvalues(view).equal(alone));
  EXPECT_TRUE(symmetric_eigenvalues(batch[0].expand({4, 33, 33})).equal(alone[0].expand({4, 33})));
  EXPECT_TRUE(symmetric_eigenvalues(batch.view({5, 20, 33, 33})).equal(alone.view({5, 20, 33})));
}

}  // namespace
}  // namespace headscope
