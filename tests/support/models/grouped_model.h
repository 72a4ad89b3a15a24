#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <set>
#include <vector>

#include "headscope/monitor.h"

namespace headscope::testing {

/// A causal model with grouped keys (4 query heads over 2 key heads) in any dtype, that keeps what
/// each of its forwards saw and was given, and can zero heads by itself.
struct GroupedModel {
  static constexpr int64_t kLayers = 3, kHeads = 4, kKeyHeads = 2, kHeadDim = 4, kVocab = 40;
  static constexpr int64_t kWidth = kHeads * kHeadDim;

  struct Layer {
    at::Tensor input;  ///< [B, T, W]
    at::Tensor z;      ///< [B, H, T, D] shown to the tap, as it was
    at::Tensor given;  ///< what came back
    bool same = false;
  };
  struct Forward {
    at::Tensor tokens;
    std::vector<Layer> layers;
  };

  explicit GroupedModel(at::ScalarType type = at::kFloat, uint64_t seed = 3) {
    at::Generator random = at::detail::createCPUGenerator(seed);
    const auto weight = [&](at::IntArrayRef sizes, double deviation) {
      return at::empty(sizes, at::kFloat).normal_(0, deviation, random).to(type);
    };
    embedding = weight({kVocab, kWidth}, 1);
    unembedding = weight({kVocab, kWidth}, 0.6);
    for (int64_t l = 0; l < kLayers; ++l) {
      projections.push_back(weight({(kHeads + 2 * kKeyHeads) * kHeadDim, kWidth}, 0.4));
      outputs.push_back(weight({kWidth, kWidth}, 0.4));
    }
  }

  at::Tensor forward(const at::Tensor& tokens) {
    Forward& seen = forwards.emplace_back();
    seen.tokens = tokens.clone();
    const int64_t batch = tokens.size(0), length = tokens.size(1);
    at::Tensor x = at::embedding(embedding, tokens);
    for (int64_t l = 0; l < kLayers; ++l) {
      const auto qkv = at::linear(x, projections[static_cast<size_t>(l)])
                           .view({batch, length, -1, kHeadDim})
                           .transpose(1, 2)
                           .split_with_sizes({kHeads, kKeyHeads, kKeyHeads}, 1);
      const at::Tensor all_k = qkv[1].repeat_interleave(kHeads / kKeyHeads, 1),
                       all_v = qkv[2].repeat_interleave(kHeads / kKeyHeads, 1);
      at::Tensor z = at::scaled_dot_product_attention(qkv[0], all_k, all_v, {}, 0.0, true);
      for (const HeadId id : zeroed)
        if (id.layer == l) z = z.index_fill(1, at::tensor({int64_t{id.head}}, at::kLong), 0);
      Layer& layer = seen.layers.emplace_back(Layer{x.clone(), z.clone(), z, true});
      if (monitor != nullptr && l != silent_layer) {
        layer.given = monitor->observe(l, qkv[0], qkv[1], qkv[2], z);
        layer.same = layer.given.is_same(z);
      }
      z = layer.given;
      layer.given = z.clone();
      x = x + at::linear(z.transpose(1, 2).reshape(x.sizes()), outputs[static_cast<size_t>(l)]);
    }
    return at::linear(x, unembedding);
  }

  Monitor* monitor = nullptr;
  std::set<HeadId> zeroed;  ///< by the model itself
  int64_t silent_layer = -1;
  std::vector<Forward> forwards;
  at::Tensor embedding, unembedding;
  std::vector<at::Tensor> projections, outputs;
};

}  // namespace headscope::testing
