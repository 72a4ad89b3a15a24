#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <optional>
#include <vector>

#include "headscope/monitor.h"
#include "tests/support/system/cpu_time.h"

namespace headscope::bench {

/// Extents of a GPT-like model and of its batch; the default is the 6 layers of 8 heads of row 10.
struct BenchShape {
  int64_t layers = 6, heads = 8, head_width = 64, context = 256, batch = 2, vocabulary = 512;
  int64_t width() const { return heads * head_width; }
};

/// A GPT-like model that trains with plain SGD on random tokens.
class BenchModel {
 public:
  explicit BenchModel(const BenchShape& shape = {}, at::TensorOptions options = at::kFloat)
      : shape_(shape), options_(options) {
    const int64_t width = shape.width();
    const auto weight = [&](at::IntArrayRef sizes) {
      at::Tensor w = at::randn(sizes, options).mul_(0.02).requires_grad_(true);
      parameters_.push_back(w);
      return w;
    };
    embedding_ = weight({shape_.vocabulary, width});
    for (int64_t l = 0; l < shape_.layers; ++l) {
      layers_.push_back({weight({3 * width, width}), weight({width, width}),
                         weight({4 * width, width}), weight({width, 4 * width})});
    }
  }

  /// One SGD step; returns the thread-CPU seconds that the monitor took in it.
  double step(int64_t index, Monitor* monitor) {
    const int64_t width = shape_.width();
    double ours = 0;
    const auto timed = [&](auto&& work) {
      const double start = testing::thread_cpu_seconds();
      work();
      ours += testing::thread_cpu_seconds() - start;
    };
    const at::Tensor told =
        at::randint(shape_.vocabulary, {shape_.batch, shape_.context}, at::kLong);
    const at::Tensor tokens = told.to(options_.device(), /*non_blocking=*/true);
    std::optional<StepScope> scope;
    if (monitor != nullptr)
      timed([&] {
        scope.emplace(monitor->begin_step({.step = index}));
        scope->micro_batch(told);
      });
    at::Tensor x = at::embedding(embedding_, tokens);
    for (int64_t l = 0; l < shape_.layers; ++l) {
      const Layer& layer = layers_[static_cast<size_t>(l)];
      const at::Tensor qkv = at::linear(at::layer_norm(x, {width}), layer.qkv);
      const auto part = [&](int64_t i) {
        return qkv.narrow(2, i * width, width)
            .view({shape_.batch, shape_.context, shape_.heads, shape_.head_width})
            .transpose(1, 2);
      };
      at::Tensor z = at::scaled_dot_product_attention(part(0), part(1), part(2), {}, 0.0, true);
      if (monitor != nullptr) timed([&] { z = monitor->observe(l, part(0), part(1), part(2), z); });
      x = x + at::linear(z.transpose(1, 2).reshape(x.sizes()), layer.out);
      x = x + at::linear(at::gelu(at::linear(at::layer_norm(x, {width}), layer.up)), layer.down);
    }
    const at::Tensor loss = at::cross_entropy_loss(
        at::linear(x, embedding_).reshape({-1, shape_.vocabulary}), tokens.reshape({-1}));
    loss.backward();
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor& parameter : parameters_) {
        parameter.sub_(parameter.grad(), 1e-3);
        parameter.mutable_grad().reset();
      }
    }
    timed([&] { scope.reset(); });
    return ours;
  }

 private:
  struct Layer {
    at::Tensor qkv, out, up, down;
  };
  BenchShape shape_;
  at::TensorOptions options_;
  at::Tensor embedding_;
  std::vector<Layer> layers_;
  std::vector<at::Tensor> parameters_;
};

}  // namespace headscope::bench
