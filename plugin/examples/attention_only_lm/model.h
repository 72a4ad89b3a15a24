#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "headscope/monitor.h"

namespace headscope::demo {

struct ModelShape {
  int64_t vocab_size = 0;
  int64_t layers = 2;
  int64_t heads = 8;
  int64_t width = 128;
  int64_t context = 64;
};

/// One pre-LN attention layer without biases; position enters as a learned relative bias on the
/// scores.
class AttentionLayer : public torch::nn::Module {
 public:
  AttentionLayer(const ModelShape& shape, int64_t layer, at::Generator& random);

  /// What the layer adds to the residual stream x [B, T, width]. `monitor` may be null.
  at::Tensor forward(const at::Tensor& x, Monitor* monitor, bool tell_bias);

 private:
  at::Tensor position_bias(int64_t length) const;
  at::Tensor split_heads(const at::Tensor& x, const at::Tensor& weight) const;

  int64_t layer_;
  int64_t heads_;
  int64_t head_dim_;
  at::Tensor norm_, query_, key_, value_, output_, relative_;
  at::Tensor distance_;     ///< [T, T] min(i - j, kDistances - 1), 0 above the diagonal
  at::Tensor causal_mask_;  ///< [T, T] 0 on and below the diagonal, -inf above
};

/// The attention-only language model of docs/demo.md: embedding, attention layers, norm, untied
/// unembedding.
class AttentionOnlyLm : public torch::nn::Module {
 public:
  AttentionOnlyLm(const ModelShape& shape, uint64_t seed);

  /// tokens [B, T] i64, T up to the context. Returns logits [B, T, vocab].
  at::Tensor forward(const at::Tensor& tokens);
  /// The residual stream after the last layer, before norm and unembedding.
  at::Tensor residual(const at::Tensor& tokens);

  /// Who watches attention; null: nobody. tell_bias false leaves the bias out of the tap, for the
  /// self-check's test.
  void watch(Monitor* monitor, bool tell_bias = true);
  const ModelShape& shape() const { return shape_; }

 private:
  ModelShape shape_;
  at::Tensor embedding_, norm_, unembedding_;
  std::vector<std::shared_ptr<AttentionLayer>> layers_;
  Monitor* monitor_ = nullptr;
  bool tell_bias_ = true;
};

/// Mean cross-entropy, nats a token, of logits [B, T, V] against labels [B, T].
at::Tensor language_loss(const at::Tensor& logits, const at::Tensor& labels);

}  // namespace headscope::demo
