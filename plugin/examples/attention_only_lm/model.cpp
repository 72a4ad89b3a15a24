#include "plugin/examples/attention_only_lm/model.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <limits>
#include <string>

namespace headscope::demo {
namespace {

constexpr int64_t kDistances = 16;
// Scales the bias up so that AdamW, whose step is about the learning rate, moves it at the pace of
// the scores.
constexpr double kBiasScale = 10.0;

at::Tensor normal(at::IntArrayRef sizes, double deviation, at::Generator& random) {
  return at::empty(sizes, at::kFloat).normal_(0.0, deviation, random);
}

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight) {
  return at::layer_norm(x, {x.size(-1)}, weight, {});
}

}  // namespace

AttentionLayer::AttentionLayer(const ModelShape& shape, int64_t layer, at::Generator& random)
    : layer_(layer), heads_(shape.heads), head_dim_(shape.width / shape.heads) {
  const int64_t width = shape.width;
  const double deviation = 1.0 / std::sqrt(static_cast<double>(width));
  norm_ = register_parameter("norm", at::ones({width}));
  query_ = register_parameter("query", normal({width, width}, deviation, random));
  key_ = register_parameter("key", normal({width, width}, deviation, random));
  value_ = register_parameter("value", normal({width, width}, deviation, random));
  output_ = register_parameter("output", normal({width, width}, 0.3 * deviation, random));
  relative_ = register_parameter("relative", at::zeros({heads_, kDistances}));

  const at::Tensor position = at::arange(shape.context);
  const at::Tensor lag = position.unsqueeze(1) - position.unsqueeze(0);
  distance_ = register_buffer("distance", lag.clamp(0, kDistances - 1));
  causal_mask_ = register_buffer(
      "causal_mask", at::zeros(lag.sizes(), at::kFloat)
                         .masked_fill(lag < 0, -std::numeric_limits<double>::infinity()));
}

at::Tensor AttentionLayer::position_bias(int64_t length) const {
  const auto corner = [length](const at::Tensor& square) {
    return square.narrow(0, 0, length).narrow(1, 0, length);
  };
  const at::Tensor lags = corner(distance_).reshape({-1});
  const at::Tensor bias = relative_.index_select(1, lags).view({1, heads_, length, length});
  return kBiasScale * bias + corner(causal_mask_);
}

at::Tensor AttentionLayer::split_heads(const at::Tensor& x, const at::Tensor& weight) const {
  return at::linear(x, weight).view({x.size(0), x.size(1), heads_, head_dim_}).transpose(1, 2);
}

at::Tensor AttentionLayer::forward(const at::Tensor& x, Monitor* monitor, bool tell_bias) {
  const at::Tensor normed = layer_norm(x, norm_);
  const at::Tensor q = split_heads(normed, query_);
  const at::Tensor k = split_heads(normed, key_);
  const at::Tensor v = split_heads(normed, value_);
  const at::Tensor bias = position_bias(x.size(1));
  at::Tensor z = at::scaled_dot_product_attention(q, k, v, bias);
  if (monitor != nullptr) {
    AttentionCall call;
    if (tell_bias) call.bias = bias;
    z = monitor->observe(layer_, q, k, v, z, call);
  }
  return at::linear(z.transpose(1, 2).reshape(x.sizes()), output_);
}

AttentionOnlyLm::AttentionOnlyLm(const ModelShape& shape, uint64_t seed) : shape_(shape) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  embedding_ =
      register_parameter("embedding", normal({shape.vocab_size, shape.width}, 0.5, random));
  for (int64_t layer = 0; layer < shape.layers; ++layer)
    layers_.push_back(register_module("layer" + std::to_string(layer),
                                      std::make_shared<AttentionLayer>(shape, layer, random)));
  norm_ = register_parameter("norm", at::ones({shape.width}));
  unembedding_ =
      register_parameter("unembedding", normal({shape.vocab_size, shape.width}, 0.02, random));
}

at::Tensor AttentionOnlyLm::residual(const at::Tensor& tokens) {
  at::Tensor x = at::embedding(embedding_, tokens);
  for (const auto& layer : layers_) x = x + layer->forward(x, monitor_, tell_bias_);
  return x;
}

at::Tensor AttentionOnlyLm::forward(const at::Tensor& tokens) {
  return at::linear(layer_norm(residual(tokens), norm_), unembedding_);
}

void AttentionOnlyLm::watch(Monitor* monitor, bool tell_bias) {
  monitor_ = monitor;
  tell_bias_ = tell_bias;
}

at::Tensor language_loss(const at::Tensor& logits, const at::Tensor& labels) {
  return at::cross_entropy_loss(logits.reshape({-1, logits.size(-1)}), labels.reshape({-1}));
}

}  // namespace headscope::demo
