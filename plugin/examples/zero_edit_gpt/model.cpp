#include "plugin/examples/zero_edit_gpt/model.h"

#include <ATen/ATen.h>

#include <limits>

namespace gpt {

BlockImpl::BlockImpl(const Config& config)
    : ln_1(register_module("ln_1",
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})))),
      ln_2(register_module("ln_2",
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})))),
      attn(register_module("attn",
                           torch::nn::MultiheadAttention(
                               torch::nn::MultiheadAttentionOptions(config.width, config.heads)
                                   .dropout(config.dropout)))),
      up(register_module("up", torch::nn::Linear(config.width, 4 * config.width))),
      down(register_module("down", torch::nn::Linear(4 * config.width, config.width))),
      drop(register_module("drop", torch::nn::Dropout(config.dropout))) {}

at::Tensor BlockImpl::forward(at::Tensor x, const at::Tensor& mask) {
  const at::Tensor normed = ln_1(x);
  x = x + drop(std::get<0>(attn(normed, normed, normed, at::Tensor(), false, mask)));
  return x + drop(down(at::gelu(up(ln_2(x)))));
}

GptImpl::GptImpl(const Config& config)
    : token(register_module("token", torch::nn::Embedding(config.vocab_size, config.width))),
      position(register_module("position", torch::nn::Embedding(config.context, config.width))),
      blocks(register_module("blocks", torch::nn::ModuleList())),
      ln_f(register_module("ln_f",
                           torch::nn::LayerNorm(torch::nn::LayerNormOptions({config.width})))),
      head(register_module(
          "head", torch::nn::Linear(
                      torch::nn::LinearOptions(config.width, config.vocab_size).bias(false)))) {
  for (int64_t i = 0; i < config.layers; ++i) blocks->push_back(Block(config));
}

at::Tensor GptImpl::forward(const at::Tensor& tokens) {
  const int64_t length = tokens.size(1);
  at::Tensor x = token(tokens) + position(at::arange(length, at::kLong));
  const at::Tensor mask =
      at::full({length, length}, -std::numeric_limits<float>::infinity(), at::kFloat).triu(1);
  x = x.transpose(0, 1);
  for (const auto& block : *blocks) x = block->as<Block>()->forward(x, mask);
  return head(ln_f(x.transpose(0, 1)));
}

}  // namespace gpt
