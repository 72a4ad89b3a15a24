#include <gtest/gtest.h>

#include "headscope/measure.h"
#include "tests/support/numeric/hostile.h"
#include "tests/support/numeric/reference.h"

namespace headscope {
namespace {

at::Tensor random_gram(int64_t n, int64_t samples, uint64_t seed) {
  const at::Tensor x = at::randn({samples, n}, at::detail::createCPUGenerator(seed), at::kDouble);
  return x.t().matmul(x);
}

void expect_eigenvalues(const at::Tensor& matrix, double relative) {
  const auto want = reference::eigenvalues(matrix);
  const at::Tensor got = symmetric_eigenvalues(matrix);
  ASSERT_EQ(got.numel(), static_cast<int64_t>(want.size()));
  const double size = std::max(std::abs(want.front()), std::abs(want.back()));
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(got[static_cast<int64_t>(i)].item<double>() - want[i]);
    EXPECT_TRUE(error <= relative * size)
        << "eigenvalue " << i << ": error " << error << " of " << size;
  }
}

TEST(Eigenvalues, MatchJacobiInDouble) {
  for (const int64_t n : {1, 2, 3, 16, 33, 64})
    expect_eigenvalues(random_gram(n, n + 5, 11), 1e-13);
}

TEST(Eigenvalues, ResolveLowRankAndGradedAndFlatSpectra) {
  expect_eigenvalues(random_gram(32, 3, 12), 1e-13);
  const at::Tensor scales = at::logspace(0, -12, 24, 10.0, at::kDouble);
  expect_eigenvalues(random_gram(24, 50, 13) * scales.view({-1, 1}) * scales, 1e-13);
  expect_eigenvalues(at::eye(40, at::kDouble), 1e-14);
}

TEST(Eigenvalues, ZeroMatrixGivesZeros) {
  EXPECT_TRUE(symmetric_eigenvalues(at::zeros({2, 5, 5})).equal(at::zeros({2, 5}, at::kDouble)));
}

TEST(Eigenvalues, ExtremeScalesNeitherOverflowNorVanish) {
  const at::Tensor matrix = random_gram(8, 20, 14);
  const at::Tensor want = symmetric_eigenvalues(matrix);
  for (const double scale : {1e300, 1e-300}) {
    testing::expect_within(symmetric_eigenvalues(matrix * scale) / scale, want,
                           want.abs().max() * 1e-13);
  }
}

TEST(Eigenvalues, OneBadMatrixGivesNanAndLeavesTheOthers) {
  at::Tensor batch =
      at::stack({random_gram(6, 9, 15), random_gram(6, 9, 16), random_gram(6, 9, 17)});
  const at::Tensor want = symmetric_eigenvalues(batch);
  batch[1][3][2] = std::numeric_limits<double>::quiet_NaN();  // of the triangle that is read
  const at::Tensor got = symmetric_eigenvalues(batch);
  EXPECT_TRUE(got[0].equal(want[0]));
  EXPECT_TRUE(got[1].isnan().all().item<bool>());
  EXPECT_TRUE(got[2].equal(want[2]));
  batch[1][3][2] = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(symmetric_eigenvalues(batch)[1].isnan().all().item<bool>());
}

TEST(Eigenvalues, TakeEmptyBatches) {
  EXPECT_EQ(symmetric_eigenvalues(at::zeros({0, 4, 4})).sizes(), at::IntArrayRef({0, 4}));
}

}  // namespace
}  // namespace headscope
