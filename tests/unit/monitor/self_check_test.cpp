#include "csrc/monitor/taps/self_check.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace headscope {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Layer {
  at::Tensor q = at::randn({2, 4, 9, 8}), k = at::randn({2, 2, 9, 8}), v = at::randn({2, 2, 9, 6});
  at::Tensor rows = at::tensor({8, 0, -1, 5, 1, 2, 3, 4}, at::kLong).view({2, 4});
  at::Tensor z() const {
    const auto wide = [](const at::Tensor& x) { return x.repeat_interleave(2, 1); };
    return at::scaled_dot_product_attention(q, wide(k), wide(v), {}, 0.0, /*is_causal=*/true);
  }
  double error(const at::Tensor& z, const AttentionCall& call = {}) const {
    return self_check_error(capture_self_check(q, k, v, z, call, rows));
  }
};

TEST(SelfCheck, PassesWhatBelongsTogetherInEveryDtype) {
  Layer layer;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16}) {
    for (at::Tensor* x : {&layer.q, &layer.k, &layer.v}) *x = x->to(type);
    EXPECT_LT(layer.error(layer.z()), self_check_tolerance(type)) << type;
    EXPECT_GT(layer.error(layer.z() * 1.1), self_check_tolerance(type)) << type;
  }
}

// One wrong number in one checked row, relative to the largest one of all rows.
TEST(SelfCheck, IsTheLargestDifferenceOfTheFirstSequencesRows) {
  const SelfCheck check{at::tensor({1.0, -4.0, 2.0, 0.5}).view({1, 1, 2, 2}),
                        at::tensor({1.0, -4.0, 3.0, 0.0}).view({1, 1, 2, 2})};
  EXPECT_EQ(self_check_error(check), 0.25);
  const Layer layer;
  const auto broken_at = [&](int64_t sequence, int64_t token) {
    at::Tensor z = layer.z();
    z[sequence][3][token][5] += 100;
    return layer.error(z);
  };
  EXPECT_GT(broken_at(0, 5), 1);
  EXPECT_LT(broken_at(0, 6), 1e-5);  // no sampled row
  EXPECT_LT(broken_at(1, 3), 1e-5);  // one of another sequence
}

TEST(SelfCheck, SaysWhatIsNotFinite) {
  const Layer layer;
  for (const double value : {kInf, -kInf, std::nan("")}) {
    at::Tensor z = layer.z();
    z[0][1][8][0] = value;
    EXPECT_EQ(layer.error(z), kInf) << value;
  }
  Layer broken;
  broken.q[0][2][5][1] = std::nan("");
  EXPECT_LT(broken.error(broken.z()), 1e-5);  // that row has nothing to compare
  broken.q[0].fill_(std::nan(""));
  EXPECT_TRUE(std::isnan(broken.error(broken.z())));
  EXPECT_TRUE(std::isnan(self_check_error({at::zeros({1, 2, 0, 4}), at::zeros({1, 2, 0, 4})})));
}

// Nothing is divided by the size of zeros.
TEST(SelfCheck, ComparesZerosAbsolutely) {
  const at::Tensor zeros = at::zeros({1, 1, 1, 3});
  EXPECT_EQ(self_check_error({zeros, zeros}), 0);
  EXPECT_EQ(self_check_error({zeros + 0.5, zeros}), 0.5);
}

}  // namespace
}  // namespace headscope
