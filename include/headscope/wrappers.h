#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/transformerlayer.h>

#include <memory>
#include <tuple>

#include "headscope/export.h"
#include "headscope/monitor.h"

namespace headscope {

// Wrappers around modules of torch::nn: the module's own parameters (nothing is copied or
// registered twice), scaled_dot_product_attention inside, a tap at its output. Faster than the
// modules, whose products and softmax keep [B, H, T, T] in memory, and not the same bits: outputs
// agree within 5e-7 and gradients within 2e-7 of their size in f32. For the same bits attach the
// module itself with Monitor::attach_zero_edit.

/// torch::nn::MultiheadAttention. The monitor must outlive the calls.
class TappedMultiheadAttention {
 public:
  /// layer: global index from 0. Throws std::invalid_argument naming what cannot be shared:
  /// different widths of query, key and value (kdim, vdim), bias_k (add_bias_kv), add_zero_attn.
  HEADSCOPE_API TappedMultiheadAttention(Monitor& monitor, int64_t layer,
                                         torch::nn::MultiheadAttention module);

  /// Arguments of the module: query [T, B, E], key and value [S, B, E], key_padding_mask [B, S]
  /// (true: ignore), attn_mask [T, S] (additive, or bool: true: ignore). The returned weights are
  /// undefined; need_weights runs the module itself, unmeasured, and says so once in the monitor's
  /// log. A call with S != T is cross-attention: counted as a tap error and not measured.
  HEADSCOPE_API std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& query,
                                                           const at::Tensor& key,
                                                           const at::Tensor& value,
                                                           const at::Tensor& key_padding_mask = {},
                                                           bool need_weights = false,
                                                           const at::Tensor& attn_mask = {});

 private:
  Monitor& monitor_;
  int64_t layer_;
  torch::nn::MultiheadAttention module_;
};

/// torch::nn::TransformerEncoderLayer: the same layer with its self-attention tapped.
class TappedEncoderLayer {
 public:
  HEADSCOPE_API TappedEncoderLayer(Monitor& monitor, int64_t layer,
                                   torch::nn::TransformerEncoderLayer module);
  HEADSCOPE_API at::Tensor forward(const at::Tensor& src, const at::Tensor& src_mask = {},
                                   const at::Tensor& src_key_padding_mask = {});

 private:
  torch::nn::TransformerEncoderLayer module_;
  TappedMultiheadAttention attention_;
};

/// torch::nn::TransformerDecoderLayer: self-attention tapped; cross-attention runs as the module
/// has it and is not measured.
class TappedDecoderLayer {
 public:
  HEADSCOPE_API TappedDecoderLayer(Monitor& monitor, int64_t layer,
                                   torch::nn::TransformerDecoderLayer module);
  HEADSCOPE_API at::Tensor forward(const at::Tensor& tgt, const at::Tensor& memory,
                                   const at::Tensor& tgt_mask = {},
                                   const at::Tensor& memory_mask = {},
                                   const at::Tensor& tgt_key_padding_mask = {},
                                   const at::Tensor& memory_key_padding_mask = {});

 private:
  torch::nn::TransformerDecoderLayer module_;
  TappedMultiheadAttention attention_;
};

}  // namespace headscope
