#include "headscope/wrappers.h"

#include <ATen/ATen.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "headscope/monitor.h"

namespace headscope {
namespace {

[[noreturn]] void refuse_module(const std::string& what) {
  throw std::invalid_argument(
      "headscope wrapper: torch::nn::MultiheadAttention with " + what +
      " cannot be wrapped; attach it with Monitor::attach_zero_edit or leave it out");
}

/// A mask of torch::nn (additive, or bool: true: ignore) as an additive one.
at::Tensor additive(const at::Tensor& mask, at::ScalarType type) {
  if (mask.scalar_type() != at::kBool) return mask.to(type);
  return at::zeros(mask.sizes(), mask.options().dtype(type))
      .masked_fill(mask, -std::numeric_limits<double>::infinity());
}

using Activation = torch::nn::activation_t;

at::Tensor activate(const Activation& activation, const at::Tensor& x) {
  if (std::holds_alternative<torch::enumtype::kGELU>(activation)) return at::gelu(x);
  if (std::holds_alternative<torch::enumtype::kReLU>(activation)) return at::relu(x);
  return std::get<std::function<at::Tensor(const at::Tensor&)>>(activation)(x);
}

}  // namespace

TappedMultiheadAttention::TappedMultiheadAttention(Monitor& monitor, int64_t layer,
                                                   torch::nn::MultiheadAttention module)
    : monitor_(monitor), layer_(layer), module_(std::move(module)) {
  if (layer < 0)
    throw std::invalid_argument("headscope wrapper: layer must not be negative, got " +
                                std::to_string(layer));
  if (!module_->_qkv_same_embed_dim) refuse_module("kdim or vdim");
  if (module_->bias_k.defined()) refuse_module("add_bias_kv");
  if (module_->options.add_zero_attn()) refuse_module("add_zero_attn");
}

std::tuple<at::Tensor, at::Tensor> TappedMultiheadAttention::forward(
    const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
    const at::Tensor& key_padding_mask, bool need_weights, const at::Tensor& attn_mask) {
  if (need_weights) {
    monitor_.warn_once("need_weights",
                       "layer " + std::to_string(layer_) +
                           " was asked for attention weights: such calls run unmeasured");
    return module_->forward(query, key, value, key_padding_mask, true, attn_mask);
  }
  const int64_t heads = module_->options.num_heads(), width = module_->head_dim,
                embed = heads * width, batch = query.size(1);
  const auto weights = module_->in_proj_weight.chunk(3);
  const std::vector<at::Tensor> biases =
      module_->in_proj_bias.defined() ? module_->in_proj_bias.chunk(3) : std::vector<at::Tensor>(3);
  const auto project = [&](const at::Tensor& x, size_t part) {
    const std::optional<at::Tensor> bias =
        biases[part].defined() ? std::optional<at::Tensor>(biases[part]) : std::nullopt;
    return at::linear(x, weights[part], bias)
        .view({x.size(0), batch, heads, width})
        .permute({1, 2, 0, 3});
  };
  const at::Tensor q = project(query, 0), k = project(key, 1), v = project(value, 2);
  AttentionCall call;
  call.is_causal = false;
  call.dropout = module_->is_training() ? module_->options.dropout() : 0.0;
  at::Tensor mask;
  if (attn_mask.defined()) mask = additive(attn_mask, q.scalar_type());
  if (key_padding_mask.defined()) {
    const at::Tensor padding =
        additive(key_padding_mask.to(at::kBool), q.scalar_type()).view({batch, 1, 1, key.size(0)});
    mask = mask.defined() ? mask + padding : padding;
    if (key.size(0) == query.size(0)) call.keep = key_padding_mask.to(at::kBool).logical_not();
  }
  if (mask.defined()) call.bias = mask;
  at::Tensor z = at::scaled_dot_product_attention(q, k, v, call.bias, call.dropout, false);
  z = monitor_.observe(layer_, q, k, v, z, call);
  const at::Tensor merged = z.permute({2, 0, 1, 3}).reshape({query.size(0), batch, embed});
  return {module_->out_proj(merged), at::Tensor()};
}

TappedEncoderLayer::TappedEncoderLayer(Monitor& monitor, int64_t layer,
                                       torch::nn::TransformerEncoderLayer module)
    : module_(std::move(module)), attention_(monitor, layer, module_->self_attn) {}

at::Tensor TappedEncoderLayer::forward(const at::Tensor& src, const at::Tensor& src_mask,
                                       const at::Tensor& src_key_padding_mask) {
  auto& own = *module_;
  const at::Tensor attended = std::get<0>(
      attention_.forward(src, src, src, src_key_padding_mask, /*need_weights=*/false, src_mask));
  const at::Tensor x = own.norm1(src + own.dropout1(attended));
  const at::Tensor fed =
      own.linear2(own.dropout(activate(own.options.activation(), own.linear1(x))));
  return own.norm2(x + own.dropout2(fed));
}

TappedDecoderLayer::TappedDecoderLayer(Monitor& monitor, int64_t layer,
                                       torch::nn::TransformerDecoderLayer module)
    : module_(std::move(module)), attention_(monitor, layer, module_->self_attn) {}

at::Tensor TappedDecoderLayer::forward(const at::Tensor& tgt, const at::Tensor& memory,
                                       const at::Tensor& tgt_mask, const at::Tensor& memory_mask,
                                       const at::Tensor& tgt_key_padding_mask,
                                       const at::Tensor& memory_key_padding_mask) {
  auto& own = *module_;
  const at::Tensor attended = std::get<0>(
      attention_.forward(tgt, tgt, tgt, tgt_key_padding_mask, /*need_weights=*/false, tgt_mask));
  at::Tensor x = own.norm1(tgt + own.dropout1(attended));
  const at::Tensor crossed = std::get<0>(own.multihead_attn(
      x, memory, memory, memory_key_padding_mask, /*need_weights=*/false, memory_mask));
  x = own.norm2(x + own.dropout2(crossed));
  const at::Tensor fed =
      own.linear2(own.dropout(activate(own.options.activation(), own.linear1(x))));
  return own.norm3(x + own.dropout3(fed));
}

}  // namespace headscope
