#pragma once

#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <cstdint>

namespace gpt {

struct Config {
  int64_t vocab_size, layers, context;
  int64_t heads = 4;
  int64_t width = 64;
  double dropout = 0.1;
};

class BlockImpl : public torch::nn::Module {
 public:
  explicit BlockImpl(const Config& config);
  /// x [T, B, width]; mask [T, T] additive.
  at::Tensor forward(at::Tensor x, const at::Tensor& mask);

 private:
  torch::nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  torch::nn::MultiheadAttention attn{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(Block);

/// A GPT as C++ trainers write it: torch::nn::MultiheadAttention, learned positions, pre-norm.
class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const Config& config);
  /// tokens [B, T] -> logits [B, T, V].
  at::Tensor forward(const at::Tensor& tokens);

 private:
  torch::nn::Embedding token{nullptr}, position{nullptr};
  torch::nn::ModuleList blocks{nullptr};
  torch::nn::LayerNorm ln_f{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Gpt);

}  // namespace gpt
