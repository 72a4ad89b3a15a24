#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>

namespace llama {

struct Config {
  int64_t vocab_size, layers, context;
  int64_t heads = 8;
  int64_t key_heads = 2;
  int64_t width = 128;
};

class RmsNormImpl : public torch::nn::Module {
 public:
  explicit RmsNormImpl(int64_t width);
  at::Tensor forward(const at::Tensor& x);

 private:
  at::Tensor weight;
};
TORCH_MODULE(RmsNorm);

/// Grouped-query attention with rotary positions through scaled_dot_product_attention.
class AttentionImpl : public torch::nn::Module {
 public:
  explicit AttentionImpl(const Config& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& cosine, const at::Tensor& sine);

 private:
  int64_t heads, key_heads, head_dim;
  torch::nn::Linear wq{nullptr}, wk{nullptr}, wv{nullptr}, wo{nullptr};
};
TORCH_MODULE(Attention);

class LayerImpl : public torch::nn::Module {
 public:
  explicit LayerImpl(const Config& config);
  at::Tensor forward(at::Tensor x, const at::Tensor& cosine, const at::Tensor& sine);

 private:
  RmsNorm attention_norm{nullptr}, ffn_norm{nullptr};
  Attention attention{nullptr};
  torch::nn::Linear w1{nullptr}, w2{nullptr}, w3{nullptr};
};
TORCH_MODULE(Layer);

class TransformerImpl : public torch::nn::Module {
 public:
  explicit TransformerImpl(const Config& config);
  /// tokens [B, T] -> logits [B, T, V].
  at::Tensor forward(const at::Tensor& tokens);

 private:
  torch::nn::Embedding tok_embeddings{nullptr};
  torch::nn::ModuleList layers{nullptr};
  RmsNorm norm{nullptr};
  torch::nn::Linear output{nullptr};
  at::Tensor cosine, sine;  // [T, head_dim / 2]
};
TORCH_MODULE(Transformer);

}  // namespace llama
