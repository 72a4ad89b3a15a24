// Way to attach x execution mode: training is the same bits with the monitor on, and every layer is
// seen. docs/attach.md shows this table.

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/activation.h>

#include <thread>

#include "headscope/wrappers.h"
#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::tiny_batch;

enum class Way { kExplicit, kSdpa, kModule, kWrapper };
enum class Mode {
  kPlain,
  kAccumulation,
  kRecompute,
  kAutocast,
  kInferenceBetween,
  kEvaluationBetween,
  kTwoModels,
  kTwoTrainers,
  kTwoThreads
};

constexpr int64_t kVocab = 32, kWidth = 16, kHeads = 4, kLayers = 2, kContext = 16;

/// Two blocks whose attention is watched in one of the ways; dropout draws from the host's
/// generator.
class MatrixModel : public torch::nn::Module {
 public:
  explicit MatrixModel(Way way) : way_(way) {
    at::Generator random = at::detail::createCPUGenerator(7);
    const auto weight = [&](const std::string& name, at::IntArrayRef sizes) {
      return register_parameter(name, at::empty(sizes).normal_(0, 0.3, random));
    };
    embedding_ = weight("embedding", {kVocab, kWidth});
    for (int64_t l = 0; l < kLayers; ++l) {
      const std::string number = std::to_string(l);
      qkv_.push_back(weight("qkv" + number, {3 * kWidth, kWidth}));
      out_.push_back(weight("out" + number, {kWidth, kWidth}));
      if (way != Way::kModule && way != Way::kWrapper) continue;
      modules_.push_back(
          register_module("attention" + number,
                          torch::nn::MultiheadAttention(
                              torch::nn::MultiheadAttentionOptions(kWidth, kHeads).dropout(0.1))));
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : modules_.back()->parameters()) parameter.normal_(0, 0.3, random);
    }
  }

  void watch(Monitor* monitor) {
    monitor_ = monitor;
    if (way_ == Way::kWrapper && monitor != nullptr) {
      for (int64_t l = 0; l < kLayers; ++l)
        wrapped_.emplace_back(*monitor, l, modules_[static_cast<size_t>(l)]);
    }
    if ((way_ == Way::kSdpa || way_ == Way::kModule) && monitor != nullptr)
      monitor->attach_zero_edit(kLayers);
  }

  at::Tensor forward(const at::Tensor& tokens);
  at::Tensor block(int64_t l, const at::Tensor& x) {
    return at::dropout(attention(l, x), 0.1, is_training());
  }

  bool recompute = false;

 private:
  at::Tensor attention(int64_t l, const at::Tensor& x) {
    const auto layer = static_cast<size_t>(l);
    const int64_t batch = x.size(0), length = x.size(1);
    if (way_ == Way::kModule || way_ == Way::kWrapper) {
      const at::Tensor mask = at::full({length, length}, -INFINITY).triu(1), y = x.transpose(0, 1);
      // Unwatched, the wrapped model runs the same wrapper: its bits are not the module's.
      return (way_ == Way::kWrapper
                  ? std::get<0>(wrapped_.at(layer).forward(y, y, y, {}, false, mask))
                  : std::get<0>(modules_[layer]->forward(y, y, y, {}, false, mask)))
          .transpose(0, 1);
    }
    const at::Tensor qkv = at::linear(x, qkv_[layer]);
    const auto part = [&](int64_t i) {
      return qkv.narrow(2, i * kWidth, kWidth)
          .view({batch, length, kHeads, kWidth / kHeads})
          .transpose(1, 2);
    };
    const double dropout = is_training() ? 0.1 : 0.0;
    at::Tensor z = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, dropout, true);
    if (way_ == Way::kExplicit && monitor_ != nullptr)
      z = monitor_->observe(l, part(0), part(1), part(2), z, {.dropout = dropout});
    return at::linear(z.transpose(1, 2).reshape(x.sizes()), out_[layer]);
  }

  Way way_;
  Monitor* monitor_ = nullptr;
  at::Tensor embedding_;
  std::vector<at::Tensor> qkv_, out_;
  std::vector<torch::nn::MultiheadAttention> modules_;
  std::vector<TappedMultiheadAttention> wrapped_;
};

/// A reentrant checkpoint, as activation checkpointing does it: the block runs without a graph, and
/// once more in the backward.
class Checkpoint : public torch::autograd::Function<Checkpoint> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            int64_t model, int64_t layer) {
    context->save_for_backward({x});
    context->saved_data["model"] = model;
    context->saved_data["layer"] = layer;
    context->saved_data["random"] = at::globalContext().defaultGenerator(at::kCPU).get_state();
    return reinterpret_cast<MatrixModel*>(model)->block(layer, x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    const at::Tensor state = generator.get_state();
    generator.set_state(context->saved_data["random"].toTensor());
    const at::Tensor x = context->get_saved_variables()[0].detach().requires_grad_(true);
    {
      const at::AutoGradMode grad(true);
      const at::Tensor y = reinterpret_cast<MatrixModel*>(context->saved_data["model"].toInt())
                               ->block(context->saved_data["layer"].toInt(), x);
      y.backward(gradients[0]);
    }
    generator.set_state(state);
    return {x.grad(), at::Tensor(), at::Tensor()};
  }
};

at::Tensor MatrixModel::forward(const at::Tensor& tokens) {
  at::Tensor x = at::embedding(embedding_, tokens);
  for (int64_t l = 0; l < kLayers; ++l) {
    x = x + (recompute && at::GradMode::is_enabled()
                 ? Checkpoint::apply(x, reinterpret_cast<int64_t>(this), l)
                 : block(l, x));
  }
  return at::linear(x, embedding_);
}

enum class Use { kAbsent, kIdle, kOn };

/// One model with its monitor.
struct Trainer {
  MatrixModel model;
  std::unique_ptr<Monitor> monitor;

  Trainer(Way way, Use use) : model(way) {
    // A wrapper needs a monitor to wrap for; idle, it only calls the operator.
    if (use == Use::kAbsent && way != Way::kWrapper) return;
    Options options;
    options.measure = use == Use::kOn;
    options.schedule.train_every = 2;
    options.schedule.longest_probe_gap = 4;
    options.schedule.budget = 0;
    options.log = [](LogLevel, const std::string& line) { ADD_FAILURE() << line; };
    monitor = std::make_unique<Monitor>(options, std::vector<std::shared_ptr<Sink>>{});
    ProbeOptions probe = testing::tiny_probe();
    monitor->set_probe(
        model, [this](const at::Tensor& tokens) { return model.forward(tokens); }, probe);
    model.watch(monitor.get());
  }

  void check(Use use, Mode mode) {
    if (use != Use::kOn) return;
    const RunReport report = monitor->report();
    EXPECT_EQ(report.layers, kLayers);
    EXPECT_EQ(report.health.taps_missing, 0u);
    EXPECT_GT(report.health.probes, 2u);
    ASSERT_NE(report.last_train, nullptr);
    EXPECT_EQ(report.last_train->heads.size(), static_cast<size_t>(kLayers * kHeads));
    // Every trained token once: nothing of a recomputed or evaluating forward.
    const int64_t samples = (mode == Mode::kAccumulation ? 3 : 1) * tiny_batch(0).numel();
    for (const HeadReading& head : report.last_train->heads) EXPECT_EQ(head.samples, samples);
    for (const auto& [kind, count] : report.health.errors) EXPECT_EQ(count, 0u) << kind;
  }
};

struct Bits {
  std::vector<double> losses;
  std::vector<at::Tensor> tensors;
};

double backward_of(MatrixModel& model, const at::Tensor& tokens) {
  const at::Tensor logits = model.forward(tokens).to(at::kFloat);
  const at::Tensor loss =
      at::cross_entropy_loss(logits.narrow(1, 0, kContext - 1).reshape({-1, kVocab}),
                             tokens.narrow(1, 1, kContext - 1).reshape({-1}));
  loss.backward();
  return loss.item<double>();
}

void one_step(Trainer& trainer, Mode mode, int64_t step, Bits& bits) {
  const int64_t micro_batches = mode == Mode::kAccumulation ? 3 : 1;
  std::optional<StepScope> scope;
  if (trainer.monitor)
    scope.emplace(trainer.monitor->begin_step(
        {.step = step, .tokens_seen = 64.0 * static_cast<double>(step)}));
  for (at::Tensor& parameter : trainer.model.parameters()) parameter.mutable_grad() = at::Tensor();
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    const at::Tensor tokens = tiny_batch(step * micro_batches + micro);
    // Untold, only InferenceMode itself says that a forward is an evaluation.
    if (scope && mode != Mode::kInferenceBetween) scope->micro_batch(tokens);
    bits.losses.push_back(backward_of(trainer.model, tokens));
    if (mode == Mode::kInferenceBetween || mode == Mode::kEvaluationBetween) {
      const c10::InferenceMode inference(mode == Mode::kInferenceBetween);
      const at::NoGradGuard no_grad;
      trainer.model.eval();
      bits.losses.push_back(trainer.model.forward(tokens).sum().item<double>());
      trainer.model.train();
    }
  }
  if (mode == Mode::kAutocast) at::autocast::clear_cache();
  const at::NoGradGuard no_grad;
  for (at::Tensor& parameter : trainer.model.parameters()) {
    if (parameter.grad().defined()) parameter.sub_(parameter.grad(), 0.05);
  }
}

void collect(const Trainer& trainer, Bits& bits) {
  for (const at::Tensor& parameter : trainer.model.parameters()) {
    bits.tensors.push_back(parameter.detach().clone());
    bits.tensors.push_back(parameter.grad().defined() ? parameter.grad().clone() : at::zeros({1}));
  }
}

Bits train(Way way, Mode mode, Use use) {
  constexpr int64_t kSteps = 14;
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  generator.set_current_seed(5);
  const int threads = at::get_num_threads();
  if (mode == Mode::kTwoThreads) at::set_num_threads(2);
  if (mode == Mode::kAutocast) {
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::set_autocast_enabled(at::kCPU, true);
  }
  Bits bits;
  if (mode == Mode::kTwoTrainers) {
    // Two trainers on threads of their own, at once. They share the host's generator, so dropout is
    // off: the order of their draws is the scheduler's.
    Trainer a(way, use), b(way, use);
    Bits second;
    const auto work = [&](Trainer& trainer, Bits& own) {
      trainer.model.eval();
      for (int64_t step = 0; step < kSteps; ++step) one_step(trainer, mode, step, own);
    };
    std::thread thread([&] { work(b, second); });
    work(a, bits);
    thread.join();
    bits.losses.insert(bits.losses.end(), second.losses.begin(), second.losses.end());
    for (Trainer* trainer : {&a, &b}) {
      collect(*trainer, bits);
      trainer->check(use, mode);
    }
  } else {
    Trainer a(way, use);
    std::optional<Trainer> b;
    if (mode == Mode::kTwoModels) b.emplace(way, use);
    a.model.recompute = mode == Mode::kRecompute;
    for (int64_t step = 0; step < kSteps; ++step) {
      one_step(a, mode, step, bits);
      if (b) one_step(*b, mode, step, bits);
    }
    collect(a, bits);
    a.check(use, mode);
    if (b) {
      collect(*b, bits);
      b->check(use, mode);
    }
  }
  bits.tensors.push_back(generator.get_state());
  EXPECT_EQ(at::get_num_threads(), mode == Mode::kTwoThreads ? 2 : threads);
  if (mode == Mode::kAutocast) at::autocast::set_autocast_enabled(at::kCPU, false);
  at::set_num_threads(threads);
  return bits;
}

class NeverDisturb : public ::testing::TestWithParam<std::tuple<Way, Mode>> {};

TEST_P(NeverDisturb, SameBitsAndEveryLayerSeen) {
  const auto [way, mode] = GetParam();
  const Bits absent = train(way, mode, Use::kAbsent);
  for (const Use use : {Use::kOn, Use::kIdle}) {
    const Bits watched = train(way, mode, use);
    EXPECT_EQ(watched.losses, absent.losses);
    ASSERT_EQ(watched.tensors.size(), absent.tensors.size());
    for (size_t i = 0; i < absent.tensors.size(); ++i)
      EXPECT_TRUE(watched.tensors[i].equal(absent.tensors[i])) << i;
  }
}

std::string name_of(const ::testing::TestParamInfo<std::tuple<Way, Mode>>& info) {
  static constexpr const char* kWays[] = {"Explicit", "Sdpa", "TorchNnModule", "Wrapper"};
  static constexpr const char* kModes[] = {"Plain",     "Accumulation",     "Recompute",
                                           "Autocast",  "InferenceBetween", "EvaluationBetween",
                                           "TwoModels", "TwoTrainers",      "TwoThreads"};
  return std::string(kWays[static_cast<size_t>(std::get<0>(info.param))]) + "_" +
         kModes[static_cast<size_t>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(
    All, NeverDisturb,
    ::testing::Combine(::testing::Values(Way::kExplicit, Way::kSdpa, Way::kModule, Way::kWrapper),
                       ::testing::Values(Mode::kPlain, Mode::kAccumulation, Mode::kRecompute,
                                         Mode::kAutocast, Mode::kInferenceBetween,
                                         Mode::kEvaluationBetween, Mode::kTwoModels,
                                         Mode::kTwoTrainers, Mode::kTwoThreads)),
    name_of);

}  // namespace
}  // namespace headscope
