#include <ATen/core/dispatch/Dispatcher.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "headscope/measure.h"
#include "tests/support/errors.h"

namespace headscope {
namespace {

using testing::error_of;
using ::testing::HasSubstr;

struct Inputs {
  at::Tensor q = at::randn({2, 4, 6, 8}), k = at::randn({2, 2, 6, 8});
  at::Tensor rows = at::zeros({2, 1}, at::kLong), targets = at::zeros({0}, at::kLong),
             offsets = at::zeros({1}, at::kLong);
};

TEST(Operators, AreRegisteredOnceWithTheirSchemas) {
  std::vector<std::string> names;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    if (name.getNamespace() != "headscope") continue;
    names.push_back(name.name);
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    ASSERT_TRUE(op.has_value()) << name;
    EXPECT_TRUE(op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) << name;
    EXPECT_TRUE(op->hasKernelForDispatchKey(c10::DispatchKey::Meta)) << name;
    ASSERT_TRUE(op->hasKernelForDispatchKey(c10::DispatchKey::Autograd)) << name;
    EXPECT_TRUE(op->isKernelFallthroughKernel(c10::DispatchKey::Autograd)) << name;
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf(
                         {"headscope::accumulate_gram_", "headscope::attention_mass",
                          "headscope::recompute_rows", "headscope::symmetric_eigenvalues"}));
}

TEST(Operators, FakeImplementationsGiveTheShapesOfTheRealOnes) {
  const Inputs in;
  const at::Tensor offsets = at::zeros({2 * 3 + 1}, at::kLong);
  const auto meta = [](const at::Tensor& tensor) { return tensor.to(at::kMeta); };
  const AttentionRows real = attention_mass(in.q, in.k, in.rows, in.targets, offsets, 3);
  const AttentionRows fake =
      attention_mass(meta(in.q), meta(in.k), meta(in.rows), meta(in.targets), meta(offsets), 3);
  EXPECT_EQ(fake.mass.sizes(), real.mass.sizes());
  EXPECT_EQ(fake.score.scalar_type(), real.score.scalar_type());
  EXPECT_EQ(fake.entropy.sizes(), real.entropy.sizes());
  EXPECT_EQ(symmetric_eigenvalues(at::zeros({3, 5, 5}).to(at::kMeta)).sizes(),
            at::IntArrayRef({3, 5}));
  EXPECT_EQ(recompute_rows(meta(in.q), meta(in.k), meta(in.k), meta(in.rows)).sizes(),
            at::IntArrayRef({2, 4, 1, 8}));
}

TEST(Operators, NeverJoinTheAutogradGraph) {
  Inputs in;
  in.q.requires_grad_(true);
  const AttentionRows rows = attention_mass(in.q, in.k, in.rows, in.targets, in.offsets, 0);
  EXPECT_FALSE(rows.entropy.requires_grad());
  at::Tensor gram = at::zeros({4, 8, 8}), sum = at::zeros({4, 8}),
             count = at::zeros({1}, at::kLong);
  accumulate_gram_(gram, sum, count, in.q, at::zeros({4, 8}));
  EXPECT_FALSE(gram.requires_grad());
}

TEST(Operators, RefusalsNameTheShapeAndTheRemedy) {
  Inputs in;
  EXPECT_THAT(error_of([&] { attention_mass(in.q[0], in.k, in.rows, in.targets, in.offsets, 0); }),
              HasSubstr("q must be [B, H, T, D], got shape [4, 6, 8]"));
  EXPECT_THAT(error_of([&] {
                attention_mass(in.q.narrow(1, 0, 3), in.k, in.rows, in.targets, in.offsets, 0);
              }),
              HasSubstr("the 3 query heads must be a multiple of the 2 key-value heads"));
  EXPECT_THAT(error_of([&] { attention_mass(in.q, in.k, in.rows + 6, in.targets, in.offsets, 0); }),
              HasSubstr("sampled row 6 is outside the 6 queries"));
  EXPECT_THAT(error_of([&] { attention_mass(in.q, in.k, in.rows, in.targets, in.offsets, 2); }),
              HasSubstr("offsets must be int64 [B * R * groups + 1] = [5]"));
  EXPECT_THAT(error_of([&] {
                attention_mass(in.q, in.k, in.rows, at::full({1}, 9, at::kLong),
                               at::zeros({1}, at::kLong), 0);
              }),
              HasSubstr("target 9 is outside the 6 keys"));
  EXPECT_THAT(
      error_of([&] {
        attention_mass(in.q, in.k, in.rows, in.targets, in.offsets, 0, {.bias = at::zeros({5, 6})});
      }),
      HasSubstr("mask [5, 6] does not broadcast to [B, Hq, Tq, Tk] = [2, 4, 6, 6]"));
  EXPECT_THAT(error_of([&] {
                attention_mass(in.q.to(at::kInt), in.k, in.rows, in.targets, in.offsets, 0);
              }),
              HasSubstr("q must be float64, float32, bfloat16 or float16, got Int"));
  EXPECT_THAT(error_of([&] {
                symmetric_eigenvalues(at::zeros({3, 4}));
              }),
              HasSubstr("[..., n, n], got [3, 4]"));
  at::Tensor gram = at::zeros({4, 8, 8}), sum = at::zeros({4, 8}),
             count = at::zeros({1}, at::kLong);
  EXPECT_THAT(error_of([&] {
                accumulate_gram_(gram, sum, count, in.q, at::zeros({4, 7}));
              }),
              HasSubstr("shift must be [H, D] = [4, 8], got [4, 7]"));
  EXPECT_THAT(error_of([&] {
                accumulate_gram_(gram, sum, count, in.q, at::zeros({4, 8}), at::ones({2, 6}));
              }),
              HasSubstr("keep must be bool [B, T] = [2, 6]"));
}

TEST(Operators, TakeNoHeadsNoBatchAndNoRows) {
  const at::Tensor none = at::zeros({0}, at::kLong), zero = at::zeros({1}, at::kLong);
  EXPECT_EQ(attention_mass(at::zeros({0, 2, 3, 4}), at::zeros({0, 2, 3, 4}),
                           at::zeros({0, 1}, at::kLong), none, zero, 2)
                .mass.numel(),
            0);
  EXPECT_EQ(attention_mass(at::zeros({1, 0, 3, 4}), at::zeros({1, 0, 3, 4}),
                           at::zeros({1, 0}, at::kLong), none, zero, 2)
                .mass.numel(),
            0);
}

}  // namespace
}  // namespace headscope
