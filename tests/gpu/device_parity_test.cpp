// The operators on a GPU against their double references: the same hostile tensors as on the CPU.

#include <ATen/ATen.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <gtest/gtest.h>

#include <cmath>

#include "headscope/measure.h"
#include "headscope/monitor.h"
#include "tests/gpu/on_device.h"
#include "tests/support/numeric/hostile.h"
#include "tests/support/numeric/reference.h"

namespace headscope {
namespace {

using testing::expect_within;
using testing::on_device;

class OnDevice : public ::testing::TestWithParam<testing::HostileCase> {};

TEST_P(OnDevice, GramMatchesDoubleReference) {
  HEADSCOPE_NEED_GPU();
  const at::Tensor z = testing::make_hostile(GetParam(), 7);
  const at::ScalarType type = z.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const int64_t heads = z.size(1), width = z.size(3);
  for (const double offset : {0.0, 3.0}) {
    const at::Tensor shift = at::full({heads, width}, offset, type);
    const auto options = at::TensorOptions().dtype(type).device(at::kCUDA);
    at::Tensor gram = at::zeros({heads, width, width}, options),
               sum = at::zeros({heads, width}, options),
               count = at::zeros({1}, options.dtype(at::kLong));
    // A stream of its own, behind which the results are read.
    const c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool();
    const c10::cuda::CUDAStreamGuard guard(stream);
    accumulate_gram_(gram, sum, count, on_device(z), shift.to(at::kCUDA));
    const at::Tensor want = reference::gram(z, shift, std::nullopt);
    const double n = static_cast<double>(z.size(0) * z.size(2));
    const double eps = type == at::kDouble ? 0x1p-53 : 0x1p-24;
    // Sums of n products: c sqrt(n) eps of the largest diagonal, with the split of the shift on
    // top.
    const double bound =
        32 * eps * (4 + std::sqrt(n)) * std::max(1.0, want.abs().max().item<double>());
    expect_within(gram.cpu(), want, testing::scalar(bound));
    EXPECT_EQ(count.cpu().item<int64_t>(), z.size(0) * z.size(2));
  }
}

TEST_P(OnDevice, AttentionMassMatchesTheCpu) {
  HEADSCOPE_NEED_GPU();
  const testing::HostileCase& shape = GetParam();
  const at::Tensor q = testing::make_hostile(shape, 1), k = testing::make_hostile(shape, 2);
  const int64_t sampled = std::min<int64_t>(16, shape.tokens);
  const at::Tensor rows = at::arange(sampled, at::kLong)
                              .mul(shape.tokens)
                              .div(sampled, "floor")
                              .expand({shape.batch, sampled})
                              .contiguous();
  const at::Tensor targets = at::zeros({shape.batch * sampled}, at::kLong),
                   offsets = at::arange(shape.batch * sampled + 1, at::kLong);
  const AttentionRows want = attention_mass(q, k, rows, targets, offsets, 1);
  const AttentionRows got = attention_mass(on_device(q), on_device(k), rows, targets, offsets, 1);
  const at::Tensor bound = testing::scalar(shape.type == at::kDouble ? 1e-12 : 2e-5);
  expect_within(got.mass.cpu(), want.mass, bound);
  expect_within(got.score.cpu(), want.score, bound * 8);
  expect_within(got.entropy.cpu(), want.entropy, bound * 8);
  expect_within(got.max_logit.cpu(), want.max_logit, bound * 8);
  expect_within(got.log_sum_exp.cpu(), want.log_sum_exp, bound * 8);
  expect_within(got.first_mass.cpu(), want.first_mass, bound);
}

INSTANTIATE_TEST_SUITE_P(Shapes, OnDevice, ::testing::ValuesIn(testing::hostile_cases()),
                         [](const auto& info) { return testing::describe(info.param); });

TEST(OnDeviceEigenvalues, MatchDoubleReference) {
  HEADSCOPE_NEED_GPU();
  for (const int64_t n : {1, 2, 31, 64, 65, 128, 129, 256, 300}) {
    const at::Tensor x = at::randn({3, 2 * n, n}, at::kDouble);
    const at::Tensor matrices = at::bmm(x.transpose(1, 2), x);
    const at::Tensor want = at::linalg_eigvalsh(matrices);
    const at::Tensor bound = want.amax(-1, /*keepdim=*/true);
    expect_within(symmetric_eigenvalues(matrices.to(at::kCUDA, at::kFloat)).cpu(),
                  at::linalg_eigvalsh(matrices.to(at::kFloat).to(at::kDouble)), bound * 3e-6);
    expect_within(symmetric_eigenvalues(matrices.to(at::kCUDA)).cpu(), want, bound * 1e-12);
  }
}

TEST(OnDeviceEigenvalues, NotFiniteIsNaNAloneThere) {
  HEADSCOPE_NEED_GPU();
  at::Tensor matrices = at::eye(64).repeat({3, 1, 1});
  matrices[1][5][2] = std::numeric_limits<float>::quiet_NaN();
  const at::Tensor values = symmetric_eigenvalues(matrices.to(at::kCUDA)).cpu();
  EXPECT_TRUE(values[1].isnan().all().item<bool>());
  EXPECT_TRUE(values[0].eq(1).all().item<bool>());
  EXPECT_TRUE(values[2].eq(1).all().item<bool>());
}

/// The readings of a monitored step on the GPU against those of the same tensors on the CPU.
TEST(OnDeviceMonitor, ReadsWhatTheCpuReads) {
  HEADSCOPE_NEED_GPU();
  const at::Tensor q = at::randn({2, 4, 96, 64}), k = at::randn({2, 4, 96, 64}),
                   v = at::randn({2, 4, 96, 64});
  const at::Tensor z = at::scaled_dot_product_attention(q, k, v, {}, 0.0, true);
  const auto read = [&](at::Device device, bool eigenvalues_on_device) {
    Options options;
    options.schedule.train_every = 1;
    options.schedule.budget = 0;
    options.eigenvalues_on_device = eigenvalues_on_device;
    options.log = [](LogLevel, const std::string& line) { ADD_FAILURE() << line; };
    Monitor monitor(options, {});
    {
      auto scope = monitor.begin_step({.step = 1});
      scope.micro_batch(at::arange(96, at::kLong).remainder(16).expand({2, 96}).contiguous());
      static_cast<void>(monitor.observe(0, q.to(device), k.to(device), v.to(device), z.to(device)));
    }
    return monitor.report().last_train;
  };
  const auto want = read(at::kCPU, false);
  for (const bool eigenvalues_on_device : {false, true}) {
    const auto got = read(at::Device(at::kCUDA, 0), eigenvalues_on_device);
    ASSERT_NE(got, nullptr);
    ASSERT_EQ(got->heads.size(), want->heads.size());
    for (size_t h = 0; h < want->heads.size(); ++h) {
      const HeadReading &a = got->heads[h], &b = want->heads[h];
      EXPECT_EQ(a.samples, b.samples);
      EXPECT_NEAR(a.participation_ratio, b.participation_ratio, 1e-4 * b.participation_ratio);
      EXPECT_NEAR(a.participation_ratio_centred, b.participation_ratio_centred,
                  1e-4 * b.participation_ratio_centred);
      EXPECT_NEAR(a.entropy, b.entropy, 1e-4);
      EXPECT_NEAR(a.max_logit, b.max_logit, 1e-4);
      for (size_t p = 0; p < b.patterns.size(); ++p) {
        if (!std::isfinite(b.patterns[p].mass)) continue;
        EXPECT_NEAR(a.patterns[p].mass, b.patterns[p].mass, 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace headscope
