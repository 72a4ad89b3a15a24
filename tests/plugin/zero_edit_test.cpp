#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/library.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/transformerlayer.h>

#include <optional>
#include <stdexcept>
#include <thread>

#include "headscope/wrappers.h"
#include "tests/support/errors.h"
#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using testing::error_of;
using ::testing::HasSubstr;
using testing::TinyModel;

/// Attaches the tiny model from outside: its own taps stay silent.
struct AttachedOutside : Attached {
  std::vector<AttentionSite> sites;
  explicit AttachedOutside(TinyModel& model, Options options = {}) : Attached(model, options) {
    model.monitor = nullptr;
    sites = monitor->attach_zero_edit();
  }
};

std::vector<double> train(TinyModel& model, Monitor& monitor, int64_t first, int64_t last) {
  return testing::tiny_training(model, &monitor, first, last);
}

bool sdpa_is_overridden() {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::scaled_dot_product_attention", "");
  return op.hasKernelForDispatchKey(c10::DispatchKey::AutogradCPU) ||
         op.hasKernelForDispatchKey(c10::DispatchKey::CPU);
}

TEST(ZeroEdit, ReadsWhatExplicitTapsRead) {
  TinyModel edited(2), unedited(2);
  Attached explicit_taps(edited);
  AttachedOutside outside(unedited);
  ASSERT_EQ(outside.sites.size(), 2u);
  EXPECT_EQ(outside.sites[1].layer, 1);
  EXPECT_EQ(outside.sites[1].kind, "scaled_dot_product_attention");
  EXPECT_EQ(outside.sites[1].query_heads, TinyModel::kHeads);
  EXPECT_EQ(testing::tiny_training(edited, explicit_taps.monitor.get(), 0, 30),
            train(unedited, *outside.monitor, 0, 30));
  const RunReport want = explicit_taps.monitor->report(), got = outside.monitor->report();
  EXPECT_EQ(got.health.taps, want.health.taps);
  EXPECT_EQ(got.health.taps_missing, 0u);
  for (const auto& [kind, count] : got.health.errors) EXPECT_EQ(count, 0u) << kind;
  for (const auto& [a, b] :
       {std::pair(want.last_probe, got.last_probe), std::pair(want.last_train, got.last_train)}) {
    ASSERT_EQ(a->heads.size(), b->heads.size());
    for (size_t i = 0; i < a->heads.size(); ++i) {
      EXPECT_EQ(a->heads[i].participation_ratio, b->heads[i].participation_ratio);
      EXPECT_EQ(a->heads[i].patterns[1].selectivity, b->heads[i].patterns[1].selectivity);
      EXPECT_EQ(a->heads[i].max_logit, b->heads[i].max_logit);
    }
  }
}

TEST(ZeroEdit, AblationReachesTheModel) {
  TinyModel edited(2), unedited(2);
  Options options;
  options.rules.mass_floor = 0.05;
  options.rules.emerging_selectivity = 1.05;
  const auto set = [](Attached& attached, TinyModel& model) {
    ProbeOptions probe = testing::tiny_probe();
    for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = 20;
    attached.monitor->set_probe(
        model, [&model](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  };
  Attached explicit_taps(edited, options, false), outside(unedited, options, false);
  set(explicit_taps, edited);
  set(outside, unedited);
  unedited.monitor = nullptr;
  outside.monitor->attach_zero_edit(2);
  testing::tiny_training(edited, explicit_taps.monitor.get(), 0, 60);
  train(unedited, *outside.monitor, 0, 60);
  const auto want = explicit_taps.monitor->report().ablations,
             got = outside.monitor->report().ablations;
  ASSERT_FALSE(want.empty());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_EQ(got[i].effect, want[i].effect);
}

TEST(ZeroEdit, DetachingRemovesTheOverrideWhole) {
  EXPECT_FALSE(sdpa_is_overridden());
  TinyModel one(1), two(1);
  {
    AttachedOutside first(one), second(two);
    EXPECT_TRUE(sdpa_is_overridden());
    first.monitor->detach_zero_edit();
    EXPECT_TRUE(sdpa_is_overridden()) << "the other monitor still uses it";
    const uint64_t taps = first.monitor->health().taps;
    train(one, *first.monitor, 0, 12);
    EXPECT_EQ(first.monitor->health().taps, taps);
    train(two, *second.monitor, 0, 12);
    EXPECT_GT(second.monitor->report().last_train->heads.size(), 0u);
  }
  EXPECT_FALSE(sdpa_is_overridden());
}

TEST(ZeroEdit, RefusesWithAReason) {
  TinyModel model(2);
  {
    Attached attached(model, {}, /*with_probe=*/false);
    EXPECT_THAT(error_of<std::invalid_argument>([&] { attached.monitor->attach_zero_edit(); }),
                HasSubstr("set_probe"));
  }
  Attached attached(model);
  EXPECT_THAT(error_of<std::invalid_argument>([&] { attached.monitor->attach_zero_edit(3); }),
              HasSubstr("3 layers were promised, and the forward made 2"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { attached.monitor->attach_zero_edit(-1); }),
              HasSubstr("-1"));
  model.on_forward = [] { throw std::runtime_error("no memory"); };
  EXPECT_THAT(error_of<std::invalid_argument>([&] { attached.monitor->attach_zero_edit(); }),
              HasSubstr("no memory"));
  EXPECT_TRUE(model.is_training());
  EXPECT_FALSE(sdpa_is_overridden());
  // No attention at all.
  Attached blind(model, {}, false);
  blind.monitor->set_probe(
      model,
      [](const at::Tensor& tokens) {
        return at::zeros({tokens.size(0), tokens.size(1), 32});
      },
      testing::tiny_probe());
  EXPECT_THAT(error_of<std::invalid_argument>([&] { blind.monitor->attach_zero_edit(); }),
              HasSubstr("no attention call that can be seen"));
}

at::Tensor other_override(const at::Tensor& q, const at::Tensor&, const at::Tensor&,
                          const std::optional<at::Tensor>&, double, bool, std::optional<double>,
                          bool) {
  return q;
}

TEST(ZeroEdit, AnotherLibrarysOverrideIsRefused) {
  TinyModel model(1);
  Attached attached(model);
  torch::Library other(torch::Library::IMPL, "aten", c10::DispatchKey::AutogradCPU, __FILE__,
                       __LINE__);
  other.impl("scaled_dot_product_attention", TORCH_FN(other_override));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { attached.monitor->attach_zero_edit(); }),
              HasSubstr("another library has already overridden"));
}

TEST(ZeroEdit, CrossAttentionIsNamedAndLeftOut) {
  TinyModel model(1);
  Attached attached(model, {}, false);
  const at::Tensor memory = at::randn({1, 4, 7, 4});
  attached.monitor->set_probe(
      model,
      [&](const at::Tensor& tokens) {
        at::Tensor logits = model.forward(tokens);
        const int64_t rows = tokens.size(0);
        at::scaled_dot_product_attention(at::randn({rows, 4, tokens.size(1), 4}),
                                         memory.expand({rows, 4, 7, 4}),
                                         memory.expand({rows, 4, 7, 4}));
        return logits;
      },
      testing::tiny_probe());
  model.monitor = nullptr;
  const auto sites = attached.monitor->attach_zero_edit(1);
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].layer, 0);
  EXPECT_EQ(sites[1].layer, -1);
  EXPECT_THAT(sites[1].refusal, HasSubstr("7 keys for 16 queries"));
  EXPECT_THAT(*attached.log, ::testing::Contains(HasSubstr("is not measured")));
}

TEST(ZeroEdit, AForwardOfAnotherOrderIsRefusedThenMeasuredAgain) {
  TinyModel model(2);
  AttachedOutside outside(model);
  const auto run = [&](int64_t first, int64_t last, bool extra) {
    for (int64_t step = first; step < last; ++step) {
      auto scope = outside.monitor->begin_step(
          {.step = step, .tokens_seen = 64.0 * static_cast<double>(step)});
      scope.micro_batch(testing::tiny_batch(step));
      if (extra) {
        const at::Tensor q = at::randn({4, 2, 16, 8});
        at::scaled_dot_product_attention(q, q, q);
      }
      testing::tiny_step(model, testing::tiny_batch(step));
    }
  };
  run(0, 11, false);
  EXPECT_EQ(outside.monitor->health().errors.at("tap"), 0u);
  const int64_t good = outside.monitor->report().last_train->step;
  run(11, 30, true);
  EXPECT_GT(outside.monitor->health().errors.at("tap"), 0u);
  EXPECT_EQ(outside.monitor->report().last_train->step, good) << "nothing wrong was published";
  EXPECT_THAT(*outside.log, ::testing::Contains(HasSubstr("where the monitor learnt at attach")));
  run(30, 90, false);
  EXPECT_GT(outside.monitor->report().last_train->step, 40);
}

TEST(ZeroEdit, OtherThreadsCallsAreTheirOwn) {
  TinyModel model(2);
  AttachedOutside outside(model);
  std::atomic<bool> stop{false};
  std::thread other([&] {
    const at::Tensor q = at::randn({2, 3, 8, 4});
    while (!stop) at::scaled_dot_product_attention(q, q, q);
  });
  train(model, *outside.monitor, 0, 25);
  stop = true;
  other.join();
  for (const auto& [kind, count] : outside.monitor->report().health.errors)
    EXPECT_EQ(count, 0u) << kind;
}

/// A decoder of torch::nn's own layers on random embeddings: [B, T] -> [B, T, V].
class TorchNnModel : public torch::nn::Module {
 public:
  explicit TorchNnModel(bool decoder) : decoder_(decoder) {
    embedding_ = register_parameter("embedding", at::randn({32, 16}));
    encoder = register_module(
        "encoder", torch::nn::TransformerEncoderLayer(
                       torch::nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32)));
    layer = register_module(
        "layer", torch::nn::TransformerDecoderLayer(
                     torch::nn::TransformerDecoderLayerOptions(16, 4).dim_feedforward(32)));
  }
  at::Tensor forward(const at::Tensor& tokens) {
    const int64_t length = tokens.size(1);
    const at::Tensor mask = at::full({length, length}, -INFINITY).triu(1);
    at::Tensor x = at::embedding(embedding_, tokens).transpose(0, 1);
    x = encoder->forward(x, mask);
    if (decoder_) x = layer->forward(x, x.narrow(0, 0, 5), mask);
    return at::linear(x.transpose(0, 1), embedding_);
  }
  torch::nn::TransformerEncoderLayer encoder{nullptr};
  torch::nn::TransformerDecoderLayer layer{nullptr};

 private:
  bool decoder_;
  at::Tensor embedding_;
};

TEST(ZeroEdit, SeesTorchNnEncoderAndDecoderLayers) {
  TorchNnModel model(/*decoder=*/true);
  TinyModel unused(1);
  Attached attached(unused, {}, false);
  attached.monitor->set_probe(
      model, [&](const at::Tensor& tokens) { return model.forward(tokens); },
      testing::tiny_probe());
  const auto sites = attached.monitor->attach_zero_edit();
  ASSERT_EQ(sites.size(), 3u);
  EXPECT_EQ(sites[0].kind, "bmm-softmax-bmm");
  EXPECT_EQ(sites[0].query_heads, 4);
  EXPECT_EQ(sites[1].layer, 1);
  EXPECT_EQ(sites[2].layer, -1) << "cross-attention over 5 keys";
  for (int64_t step = 0; step < 11; ++step) {
    auto scope = attached.monitor->begin_step(
        {.step = step, .tokens_seen = 64.0 * static_cast<double>(step)});
    const at::Tensor tokens = testing::tiny_batch(step);
    scope.micro_batch(tokens);
    model.forward(tokens).sum().backward();
  }
  const RunReport report = attached.monitor->report();
  for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
  EXPECT_EQ(report.layers, 2);
  // A causal mask, recovered from the scores alone: position 0 attends to itself only.
  EXPECT_EQ(report.last_train->heads.size(), 8u);
  EXPECT_TRUE(report.last_probe->heads[0].participation_ratio >= 1);
}

// Values of another width than keys take torch's math path: a bmm, a softmax and a bmm inside one
// call.
TEST(ZeroEdit, AnOperatorOnItsMathPathIsOneAttention) {
  TinyModel unused(1);
  Attached attached(unused, {}, false);
  attached.monitor->set_probe(
      unused,
      [&](const at::Tensor& tokens) {
        const at::Tensor q = at::randn({tokens.size(0), 2, tokens.size(1), 6});
        at::scaled_dot_product_attention(q, q, q.narrow(3, 0, 4), {}, 0.0, true);
        at::scaled_dot_product_attention(q, q, q, {}, 0.0, true);
        return at::Tensor();
      },
      testing::tiny_probe());
  const auto sites = attached.monitor->attach_zero_edit(2);
  ASSERT_EQ(sites.size(), 2u);
  EXPECT_EQ(sites[0].kind, "scaled_dot_product_attention");
  EXPECT_EQ(sites[0].value_dim, 4);
}

TEST(ZeroEdit, AProbeOfSingleRowsStillShowsTheHeads) {
  TorchNnModel model(/*decoder=*/false);
  TinyModel unused(1);
  Attached attached(unused, {}, false);
  ProbeOptions probe = testing::tiny_probe();
  probe.micro_batch = 1;
  attached.monitor->set_probe(
      model, [&](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
  EXPECT_EQ(attached.monitor->attach_zero_edit(1).front().query_heads, 4);
}

TEST(ZeroEdit, AnotherModelsForwardAfterTheToldOnesIsLeftOut) {
  TinyModel model(2);
  AttachedOutside outside(model);
  for (int64_t step = 0; step < 21; ++step) {
    auto scope = outside.monitor->begin_step(
        {.step = step, .tokens_seen = 64.0 * static_cast<double>(step)});
    scope.micro_batch(testing::tiny_batch(step));
    testing::tiny_step(model, testing::tiny_batch(step));
    const at::NoGradGuard no_grad;
    const at::Tensor q = at::randn({1, 3, 7, 5});
    at::scaled_dot_product_attention(q, q, q);
  }
  const RunReport report = outside.monitor->report();
  EXPECT_EQ(report.health.errors.at("tap"), 0u);
  EXPECT_EQ(report.last_train->step, 20);
}

TEST(ZeroEdit, AMonitorThatDiesOnAnotherThreadLeavesNoOneToCall) {
  TinyModel model(2);
  auto outside = std::make_unique<AttachedOutside>(model);
  std::optional<StepScope> scope(outside->monitor->begin_step({.step = 0}));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { outside->monitor->attach_zero_edit(); }),
              HasSubstr("between steps"));
  std::thread([&] {
    scope.reset();
    outside.reset();
  }).join();
  model.forward(testing::tiny_batch(0));
  EXPECT_FALSE(sdpa_is_overridden());
}

TEST(Wrappers, GiveWhatTheModulesGive) {
  TorchNnModel model(/*decoder=*/true);
  model.encoder->eval();
  model.layer->eval();
  TinyModel unused(1);
  Attached attached(unused, {}, false);
  TappedEncoderLayer encoder(*attached.monitor, 0, model.encoder);
  TappedDecoderLayer decoder(*attached.monitor, 1, model.layer);
  const at::Tensor x = at::randn({9, 3, 16}), memory = at::randn({5, 3, 16});
  const at::Tensor mask = at::full({9, 9}, -INFINITY).triu(1);
  at::Tensor padding = at::zeros({3, 9}, at::kBool);
  padding[1].narrow(0, 6, 3).fill_(true);
  {
    auto scope = attached.monitor->begin_step({.step = 0});
    const at::Tensor ours = encoder.forward(x, mask, padding),
                     theirs = model.encoder->forward(x, mask, padding);
    EXPECT_LT((ours - theirs).abs().max().item<double>(), 2e-6);
    const at::Tensor got = decoder.forward(x, memory, mask),
                     want = model.layer->forward(x, memory, mask);
    EXPECT_LT((got - want).abs().max().item<double>(), 2e-6);
    // The same parameters: gradients land in the module's own.
    got.sum().backward();
    EXPECT_TRUE(model.layer->self_attn->in_proj_weight.grad().defined());
  }
  const RunReport report = attached.monitor->report();
  for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
  EXPECT_EQ(report.last_train->heads.size(), 8u);
  EXPECT_EQ(report.last_train->heads[0].samples, 3 * 9 - 3) << "padding does not count";
}

TEST(Wrappers, NameWhatTheyCannotShare) {
  TinyModel unused(1);
  Attached attached(unused, {}, false);
  using Attention = torch::nn::MultiheadAttention;
  using AttentionOptions = torch::nn::MultiheadAttentionOptions;
  const auto refusal = [&](const AttentionOptions& options) {
    return error_of<std::invalid_argument>(
        [&] { TappedMultiheadAttention(*attached.monitor, 0, Attention(options)); });
  };
  EXPECT_THAT(refusal(AttentionOptions(16, 4).kdim(8)), HasSubstr("kdim"));
  EXPECT_THAT(refusal(AttentionOptions(16, 4).add_bias_kv(true)), HasSubstr("add_bias_kv"));
  EXPECT_THAT(refusal(AttentionOptions(16, 4).add_zero_attn(true)), HasSubstr("add_zero_attn"));
  TappedMultiheadAttention wrapped(*attached.monitor, 0, Attention(AttentionOptions(16, 4)));
  const at::Tensor x = at::randn({6, 2, 16});
  EXPECT_TRUE(std::get<1>(wrapped.forward(x, x, x, {}, /*need_weights=*/true)).defined());
  EXPECT_THAT(*attached.log, ::testing::ElementsAre(HasSubstr("asked for attention weights")));
}

}  // namespace
}  // namespace headscope
