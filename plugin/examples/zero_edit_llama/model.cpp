#include "plugin/examples/zero_edit_llama/model.h"

#include <ATen/ATen.h>

namespace llama {
namespace {

torch::nn::Linear no_bias(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

/// Rotates the halves of x [B, H, T, D] by position.
at::Tensor rotate(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine) {
  const auto halves = x.chunk(2, -1);
  return at::cat({halves[0] * cosine - halves[1] * sine, halves[0] * sine + halves[1] * cosine},
                 -1);
}

}  // namespace

RmsNormImpl::RmsNormImpl(int64_t width) : weight(register_parameter("weight", at::ones({width}))) {}

at::Tensor RmsNormImpl::forward(const at::Tensor& x) {
  return x * at::rsqrt(x.pow(2).mean(-1, true) + 1e-5) * weight;
}

AttentionImpl::AttentionImpl(const Config& config)
    : heads(config.heads),
      key_heads(config.key_heads),
      head_dim(config.width / config.heads),
      wq(register_module("wq", no_bias(config.width, heads * head_dim))),
      wk(register_module("wk", no_bias(config.width, key_heads * head_dim))),
      wv(register_module("wv", no_bias(config.width, key_heads * head_dim))),
      wo(register_module("wo", no_bias(heads * head_dim, config.width))) {}

at::Tensor AttentionImpl::forward(const at::Tensor& x, const at::Tensor& cosine,
                                  const at::Tensor& sine) {
  const int64_t batch = x.size(0), length = x.size(1);
  const auto split = [&](const at::Tensor& y, int64_t count) {
    return y.view({batch, length, count, head_dim}).transpose(1, 2);
  };
  const at::Tensor q = rotate(split(wq(x), heads), cosine, sine);
  const at::Tensor k = rotate(split(wk(x), key_heads), cosine, sine);
  const at::Tensor v = split(wv(x), key_heads);
  const at::Tensor z =
      at::scaled_dot_product_attention(q, k, v, /*attn_mask=*/{}, /*dropout_p=*/0.0,
                                       /*is_causal=*/true, /*scale=*/std::nullopt,
                                       /*enable_gqa=*/true);
  return wo(z.transpose(1, 2).reshape({batch, length, heads * head_dim}));
}

LayerImpl::LayerImpl(const Config& config)
    : attention_norm(register_module("attention_norm", RmsNorm(config.width))),
      ffn_norm(register_module("ffn_norm", RmsNorm(config.width))),
      attention(register_module("attention", Attention(config))),
      w1(register_module("w1", no_bias(config.width, 2 * config.width))),
      w2(register_module("w2", no_bias(2 * config.width, config.width))),
      w3(register_module("w3", no_bias(config.width, 2 * config.width))) {}

at::Tensor LayerImpl::forward(at::Tensor x, const at::Tensor& cosine, const at::Tensor& sine) {
  x = x + attention(attention_norm(x), cosine, sine);
  const at::Tensor normed = ffn_norm(x);
  return x + w2(at::silu(w1(normed)) * w3(normed));
}

TransformerImpl::TransformerImpl(const Config& config)
    : tok_embeddings(
          register_module("tok_embeddings", torch::nn::Embedding(config.vocab_size, config.width))),
      layers(register_module("layers", torch::nn::ModuleList())),
      norm(register_module("norm", RmsNorm(config.width))),
      output(register_module("output", no_bias(config.width, config.vocab_size))) {
  for (int64_t i = 0; i < config.layers; ++i) layers->push_back(Layer(config));
  const int64_t half = config.width / config.heads / 2;
  const at::Tensor frequencies =
      at::pow(10000.0, at::arange(half, at::kFloat) / -static_cast<double>(half));
  const at::Tensor angles = at::outer(at::arange(config.context, at::kFloat), frequencies);
  cosine = register_buffer("cosine", angles.cos());
  sine = register_buffer("sine", angles.sin());
}

at::Tensor TransformerImpl::forward(const at::Tensor& tokens) {
  const int64_t length = tokens.size(1);
  at::Tensor x = tok_embeddings(tokens);
  for (const auto& layer : *layers)
    x = layer->as<Layer>()->forward(x, cosine.narrow(0, 0, length), sine.narrow(0, 0, length));
  return output(norm(x));
}

}  // namespace llama
