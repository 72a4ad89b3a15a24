#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <string>
#include <vector>

#include "headscope/monitor.h"

namespace induction {

/// One layer of 24 heads, one of which is an induction head by construction: its query is the
/// token, its key the token before, its value the token, so that it looks for what followed this
/// token earlier and predicts it. The others are random.
struct Model {
  static constexpr int64_t kVocab = 32, kHeads = 24, kInduction = 5;

  Model() {
    at::Generator random = at::detail::createCPUGenerator(1);
    const auto weight = [&](double deviation, double diagonal) {
      at::Tensor all =
          at::empty({kHeads, kVocab, kVocab}, at::kFloat).normal_(0, deviation, random);
      all[kInduction] = at::eye(kVocab).mul(diagonal);
      return all;
    };
    query = weight(1, 8);
    key = weight(1, 8);
    value = weight(0.3, 1);
    output = weight(0.1, 6);
  }

  /// tokens [N, T] -> logits [N, T, V].
  at::Tensor forward(const at::Tensor& tokens) const {
    const at::Tensor own = at::one_hot(tokens, kVocab).to(at::kFloat).unsqueeze(1);  // [N, 1, T, V]
    at::Tensor before = own.roll(1, 2);
    before.select(2, 0).zero_();
    const at::Tensor q = at::matmul(own, query), k = at::matmul(before, key),
                     v = at::matmul(own, value);
    at::Tensor z = at::scaled_dot_product_attention(q, k, v, {}, 0.0, /*is_causal=*/true);
    if (monitor) z = monitor->observe(0, q, k, v, z);
    return at::matmul(z, output).sum(1);
  }

  std::shared_ptr<headscope::Monitor> monitor;
  at::Tensor query, key, value, output;  // [H, V, V]
};

}  // namespace induction
