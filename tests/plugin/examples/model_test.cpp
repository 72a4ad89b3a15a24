#include "plugin/examples/attention_only_lm/model.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace headscope::demo {
namespace {

const ModelShape kShape{.vocab_size = 20, .layers = 2, .heads = 2, .width = 16, .context = 32};

TEST(AttentionOnlyLm, PredictsFromThePastAlone) {
  AttentionOnlyLm model(kShape, 3);
  const at::Tensor tokens = at::arange(32).remainder(20).unsqueeze(0);
  at::Tensor changed = tokens.clone();
  changed[0][20] = 7;
  const at::Tensor before = model.forward(tokens), after = model.forward(changed);
  EXPECT_TRUE(before.narrow(1, 0, 20).equal(after.narrow(1, 0, 20)));
  EXPECT_FALSE(before.narrow(1, 20, 12).equal(after.narrow(1, 20, 12)));
}

TEST(AttentionOnlyLm, ReadsPrefixesOfAContextAlike) {
  AttentionOnlyLm model(kShape, 3);
  const at::Tensor tokens = at::arange(32).remainder(20).unsqueeze(0);
  const at::Tensor whole = model.forward(tokens).narrow(1, 0, 10);
  const at::Tensor prefix = model.forward(tokens.narrow(1, 0, 10));
  // Eight roundings of sums of 16 terms of size 1.
  EXPECT_TRUE(at::allclose(whole, prefix, 0, 1e-5));
}

TEST(AttentionOnlyLm, StartsFromItsSeedAlone) {
  const at::Tensor tokens = at::arange(8).unsqueeze(0);
  const at::Tensor state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  AttentionOnlyLm first(kShape, 5);
  EXPECT_TRUE(state.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
  at::rand({3});
  EXPECT_TRUE(first.forward(tokens).equal(AttentionOnlyLm(kShape, 5).forward(tokens)));
  EXPECT_FALSE(first.forward(tokens).equal(AttentionOnlyLm(kShape, 6).forward(tokens)));
}

TEST(AttentionOnlyLm, LearnsItsPositionBias) {
  AttentionOnlyLm model(kShape, 3);
  const at::Tensor tokens = at::arange(32).remainder(20).unsqueeze(0);
  language_loss(model.forward(tokens), tokens).backward();
  for (const auto& entry : model.named_parameters()) {
    ASSERT_TRUE(entry.value().grad().defined()) << entry.key();
    EXPECT_GT(entry.value().grad().abs().sum().item<double>(), 0) << entry.key();
  }
}

TEST(AttentionOnlyLm, LossIsTheMeanNegativeLogLikelihood) {
  const at::Tensor logits = at::zeros({2, 3, 20});
  const at::Tensor labels = at::zeros({2, 3}, at::kLong);
  EXPECT_NEAR(language_loss(logits, labels).item<double>(), std::log(20.0), 1e-6);
}

}  // namespace
}  // namespace headscope::demo
