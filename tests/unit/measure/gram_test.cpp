#include <gtest/gtest.h>

#include "headscope/measure.h"
#include "headscope/spectrum.h"
#include "tests/support/hostile.h"
#include "tests/support/reference.h"

namespace headscope {
namespace {

using testing::expect_within;
using testing::HostileCase;
using testing::make_hostile;

struct Sums {
  at::Tensor gram, sum, count;
};

Sums run(const at::Tensor& z, const at::Tensor& shift,
         const std::optional<at::Tensor>& keep = std::nullopt) {
  const auto options = shift.options();
  Sums sums{at::zeros({z.size(1), z.size(3), z.size(3)}, options),
            at::zeros({z.size(1), z.size(3)}, options), at::zeros({1}, at::kLong)};
  accumulate_gram_(sums.gram, sums.sum, sums.count, z, shift, keep);
  return sums;
}

at::ScalarType sum_type(at::ScalarType type) {
  return type == at::kDouble ? at::kDouble : at::kFloat;
}

// Sums of n products in blocks of 64: (64 + n / 64 + 3) roundings of the sum of magnitudes, the
// shift's one included.
at::Tensor sum_bound(const at::Tensor& z, const at::Tensor& shift, at::ScalarType type) {
  const at::Tensor magnitude =
      (z.to(at::kDouble) - shift.to(at::kDouble).view({1, z.size(1), 1, z.size(3)})).abs() +
      shift.to(at::kDouble).abs().view({1, z.size(1), 1, z.size(3)});
  const double n = static_cast<double>(z.size(0) * z.size(2));
  const double eps = type == at::kDouble ? 0x1p-53 : 0x1p-24;
  return reference::gram(magnitude, at::zeros({z.size(1), z.size(3)}), std::nullopt) *
         (eps * (64 + n / 64 + 3));
}

class GramParity : public ::testing::TestWithParam<HostileCase> {};

TEST_P(GramParity, MatchesDoubleReference) {
  const at::Tensor z = make_hostile(GetParam(), 7);
  const at::Tensor shift =
      at::full({z.size(1), z.size(3)}, 0.25, at::TensorOptions(sum_type(z.scalar_type())));
  const Sums got = run(z, shift);
  expect_within(got.gram, reference::gram(z, shift, std::nullopt),
                sum_bound(z, shift, shift.scalar_type()));
  EXPECT_EQ(got.count.item<int64_t>(), z.size(0) * z.size(2));
  const at::Tensor want_sum = (z.to(at::kDouble) - 0.25).sum({0, 2});
  expect_within(got.sum, want_sum, (z.to(at::kDouble).abs() + 0.5).sum({0, 2}) * (70 * 0x1p-24));
  EXPECT_TRUE(got.gram.equal(got.gram.transpose(1, 2)));
}

INSTANTIATE_TEST_SUITE_P(Shapes, GramParity, ::testing::ValuesIn(testing::hostile_cases()),
                         [](const auto& info) { return testing::describe(info.param); });

TEST(Gram, IsExactOnSmallIntegers) {
  const at::Tensor z =
      at::randint(-8, 9, {2, 3, 130, 9}, at::detail::createCPUGenerator(3), at::kDouble);
  const at::Tensor zero = at::zeros({3, 9}, at::kFloat);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    EXPECT_TRUE(
        run(z.to(type), zero).gram.to(at::kDouble).equal(reference::gram(z, zero, std::nullopt)));
  }
}

TEST(Gram, AddsOverCallsLikeOneBatch) {
  const at::Tensor z =
      at::randint(-8, 9, {4, 2, 33, 5}, at::detail::createCPUGenerator(4), at::kFloat);
  const at::Tensor zero = at::zeros({2, 5});
  Sums parts{at::zeros({2, 5, 5}), at::zeros({2, 5}), at::zeros({1}, at::kLong)};
  for (const auto& part : z.split(1))
    accumulate_gram_(parts.gram, parts.sum, parts.count, part, zero);
  const Sums whole = run(z, zero);
  EXPECT_TRUE(parts.gram.equal(whole.gram));
  EXPECT_TRUE(parts.sum.equal(whole.sum));
  EXPECT_EQ(parts.count.item<int64_t>(), whole.count.item<int64_t>());
}

TEST(Gram, LeavesPaddingOutEvenWhenItIsNan) {
  at::Tensor z = at::randn({2, 2, 70, 6}, at::detail::createCPUGenerator(5));
  const at::Tensor keep = at::rand({2, 70}, at::detail::createCPUGenerator(6)) > 0.4;
  z.masked_fill_(keep.logical_not().view({2, 1, 70, 1}), std::numeric_limits<float>::quiet_NaN());
  const at::Tensor zero = at::zeros({2, 6});
  const Sums got = run(z, zero, keep);
  EXPECT_EQ(got.count.item<int64_t>(), keep.sum().item<int64_t>());
  const at::Tensor clean = z.nan_to_num(0.0);
  expect_within(got.gram, reference::gram(clean, zero, std::nullopt),
                sum_bound(clean, zero, at::kFloat));
}

TEST(Gram, OneHeadsNanStaysItsOwn) {
  at::Tensor z = at::randn({1, 3, 20, 4}, at::detail::createCPUGenerator(8));
  z[0][1][7][2] = std::numeric_limits<float>::infinity();
  const Sums got = run(z, at::zeros({3, 4}));
  EXPECT_TRUE(got.gram[0].isfinite().all().item<bool>());
  EXPECT_FALSE(got.gram[1].isfinite().all().item<bool>());
  EXPECT_TRUE(got.gram[2].isfinite().all().item<bool>());
}

TEST(Gram, EmptyInputsChangeNothing) {
  const Sums no_batch = run(at::zeros({0, 2, 5, 3}), at::zeros({2, 3}));
  EXPECT_EQ(no_batch.count.item<int64_t>(), 0);
  const Sums no_heads = run(at::zeros({2, 0, 5, 3}), at::zeros({0, 3}));
  EXPECT_EQ(no_heads.count.item<int64_t>(), 0);
}

// Goal 6: the participation ratio end to end, uncentred and centred, on spectra that one direction
// dominates.
TEST(Gram, ParticipationRatioIsExactUnderStrongOffsets) {
  for (const double offset : {0.0, 1.0, 30.0, 1000.0}) {
    const at::Tensor scales = at::logspace(0, -2, 16, 10.0, at::kDouble);
    const at::Tensor z =
        (at::randn({4, 1, 200, 16}, at::detail::createCPUGenerator(9), at::kDouble) * scales +
         offset)
            .to(at::kFloat);
    const at::Tensor shift = z.narrow(0, 0, 1).narrow(2, 0, 100).mean(at::IntArrayRef({0, 2}));
    const Sums got = run(z, shift);
    const double n = static_cast<double>(got.count.item<int64_t>());
    const auto pr = [](const at::Tensor& matrix) {
      const auto values = reference::eigenvalues(matrix);
      return participation_ratio(values);
    };
    const at::Tensor mean = got.sum.to(at::kDouble)[0] / n, c = shift.to(at::kDouble)[0];
    const at::Tensor about = got.gram.to(at::kDouble)[0] / n;
    const at::Tensor centred = about - at::outer(mean, mean);
    const at::Tensor uncentred = about + at::outer(c, mean) + at::outer(mean, c) + at::outer(c, c);
    const at::Tensor x = z.to(at::kDouble).view({-1, 16});
    const at::Tensor x0 = x - x.mean(0);
    EXPECT_NEAR(pr(uncentred) / pr(x.t().matmul(x) / n), 1.0, 1e-6) << "offset " << offset;
    EXPECT_NEAR(pr(centred) / pr(x0.t().matmul(x0) / n), 1.0, 1e-5) << "offset " << offset;
  }
}

}  // namespace
}  // namespace headscope
