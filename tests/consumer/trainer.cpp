// A user's trainer against an installed headscope: the tap, the zero edit and resuming.
#include <ATen/ATen.h>
#include <headscope/monitor.h>
#include <headscope/version.h>
#include <torch/nn/module.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

namespace {

constexpr int64_t kVocab = 32, kContext = 16, kHeads = 2, kHeadDim = 8, kWidth = 16;

struct Model : torch::nn::Module {
  at::Tensor embedding = register_parameter("embedding", at::randn({kVocab, kWidth}));
  at::Tensor projection = register_parameter("projection", at::randn({3 * kWidth, kWidth}) * 0.2);
  headscope::Monitor* monitor = nullptr;

  at::Tensor forward(const at::Tensor& tokens) {
    const at::Tensor x = at::embedding(embedding, tokens);
    const auto heads = at::linear(x, projection)
                           .view({x.size(0), x.size(1), 3 * kHeads, kHeadDim})
                           .transpose(1, 2)
                           .chunk(3, 1);
    at::Tensor z = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0, true);
    if (monitor != nullptr) z = monitor->observe(0, heads[0], heads[1], heads[2], z);
    return at::linear(x + z.transpose(1, 2).reshape(x.sizes()), embedding);
  }
};

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

void train(Model& model, headscope::Monitor& monitor, int64_t first, int64_t last) {
  for (int64_t step = first; step < last; ++step) {
    auto watched = monitor.begin_step({.step = step, .tokens_seen = double(step * kContext)});
    const at::Tensor tokens = at::randint(kVocab, {4, kContext / 2}, at::kLong).repeat({1, 2});
    watched.micro_batch(tokens);
    const at::Tensor logits = model.forward(tokens).narrow(1, 0, kContext - 1);
    const at::Tensor loss = at::cross_entropy_loss(logits.reshape({-1, kVocab}),
                                                   tokens.narrow(1, 1, kContext - 1).reshape({-1}));
    loss.backward();
    watched.loss(loss.item<double>());
    const at::NoGradGuard no_grad;
    for (at::Tensor& parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), 0.05);
      parameter.mutable_grad() = at::Tensor();
    }
  }
}

std::shared_ptr<headscope::Monitor> attach(Model& model) {
  headscope::Options options;
  options.port = 0;
  options.schedule.budget = 0;  // the same steps are measured whatever the machine does
  auto monitor = headscope::Monitor::attach(std::move(options));
  monitor->set_probe(model, [&model](const at::Tensor& tokens) { return model.forward(tokens); },
                     {.vocab_size = kVocab, .context = kContext, .examples = 16});
  return monitor;
}

void require_measured(headscope::Monitor& monitor) {
  const headscope::RunReport report = monitor.report();
  for (const auto& [kind, count] : report.health.errors) require(count == 0, kind.c_str());
  require(report.layers == 1 && report.health.probes > 0 && report.last_probe->heads.size() == 2,
          "two heads of one layer were to be measured");
}

}  // namespace

int main() try {
  require(std::strcmp(headscope::version(), HEADSCOPE_VERSION) == 0, "headers of another version");
  Model model;
  headscope::StateDict state;
  {
    const auto monitor = attach(model);
    model.monitor = monitor.get();
    train(model, *monitor, 0, 12);
    require_measured(*monitor);
    state = monitor->state_dict();
    model.monitor = nullptr;
  }
  {
    const auto monitor = attach(model);
    monitor->load_state_dict(state);
    require(monitor->attach_zero_edit(1).size() == 1, "one attention call was to be seen");
    train(model, *monitor, 12, 24);
    require_measured(*monitor);
  }
  std::puts("trained, measured and resumed");
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "trainer: %s\n", error.what());
  return 1;
}
