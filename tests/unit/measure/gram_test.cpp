#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tuple>

#include "headscope/measure.h"
#include "headscope/spectrum.h"
#include "tests/support/numeric/gram_targets.h"
#include "tests/support/numeric/hostile.h"
#include "tests/support/numeric/reference.h"

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

class GramParity : public ::testing::TestWithParam<std::tuple<HostileCase, int64_t>> {};

TEST_P(GramParity, MatchesDoubleReference) {
  if (const char* missing = testing::missing_for(std::get<1>(GetParam()))) GTEST_SKIP() << missing;
  const testing::WithGramTarget target(std::get<1>(GetParam()));
  const at::Tensor z = make_hostile(std::get<0>(GetParam()), 7);
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

const auto gram_name = [](const auto& info) {
  return testing::describe(std::get<0>(info.param)) + "_" +
         testing::gram_target_name(std::get<1>(info.param));
};

/// What the tiles multiply: 16 bits an element.
std::vector<HostileCase> tile_cases() {
  std::vector<HostileCase> cases = testing::hostile_cases();
  for (const HostileCase& c : testing::wide_cases()) cases.push_back(c);
  std::erase_if(cases, [](const HostileCase& c) { return c10::elementSize(c.type) != 2; });
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Shapes, GramParity,
                         ::testing::Combine(::testing::ValuesIn(testing::hostile_cases()),
                                            ::testing::ValuesIn(testing::simd_targets())),
                         gram_name);
INSTANTIATE_TEST_SUITE_P(Widths, GramParity,
                         ::testing::Combine(::testing::ValuesIn(testing::wide_cases()),
                                            ::testing::ValuesIn(testing::simd_targets())),
                         gram_name);
INSTANTIATE_TEST_SUITE_P(Tiles, GramParity,
                         ::testing::Combine(::testing::ValuesIn(tile_cases()),
                                            ::testing::ValuesIn(testing::tile_targets())),
                         gram_name);

TEST(Gram, IsExactOnSmallIntegersWhateverTheVectors) {
  for (const int64_t width : {9, 64, 65}) {
    const at::Tensor z =
        at::randint(-8, 9, {2, 3, 130, width}, at::detail::createCPUGenerator(3), at::kDouble);
    const at::Tensor zero = at::zeros({3, width}, at::kFloat);
    const at::Tensor want = reference::gram(z, zero, std::nullopt);
    for (const int64_t simd : testing::simd_targets()) {
      const testing::WithGramTarget target(simd);
      for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
        EXPECT_TRUE(run(z.to(type), zero).gram.to(at::kDouble).equal(want))
            << type << " of width " << width << " on " << testing::target_name(simd);
      }
    }
  }
}

// Threads share the tiles of a head, not its tokens: no sum depends on how many there are.
TEST(Gram, IsTheSameBitForBitForAnyNumberOfThreads) {
  const at::Tensor z = at::randn({2, 3, 130, 65}, at::detail::createCPUGenerator(11));
  const at::Tensor shift = at::randn({3, 65}, at::detail::createCPUGenerator(12));
  const int before = at::get_num_threads();
  const Sums want = run(z, shift);
  for (const int threads : {2, 5, 16}) {
    at::set_num_threads(threads);
    const Sums got = run(z, shift);
    EXPECT_TRUE(got.gram.equal(want.gram)) << threads << " threads";
    EXPECT_TRUE(got.sum.equal(want.sum)) << threads << " threads";
  }
  at::set_num_threads(before);
}

TEST(Gram, WritesNothingBehindTheMatrices) {
  for (const int64_t width : {1, 13, 65}) {
    const at::Tensor z = at::randn({1, 2, 70, width}, at::detail::createCPUGenerator(13));
    at::Tensor gram_buffer = at::full({2 * width * width + 64}, 7.0f),
               sum_buffer = at::full({2 * width + 64}, 7.0f), count = at::zeros({1}, at::kLong);
    at::Tensor gram = gram_buffer.narrow(0, 0, 2 * width * width).view({2, width, width}),
               sum = sum_buffer.narrow(0, 0, 2 * width).view({2, width});
    accumulate_gram_(gram, sum, count, z, at::zeros({2, width}));
    EXPECT_TRUE(gram_buffer.narrow(0, 2 * width * width, 64).eq(7.0f).all().item<bool>());
    EXPECT_TRUE(sum_buffer.narrow(0, 2 * width, 64).eq(7.0f).all().item<bool>());
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
