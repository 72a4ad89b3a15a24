#pragma once

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cmath>
#include <vector>

#include "csrc/monitor/analysis/spectra.h"
#include "csrc/probe/seen_keys.h"

namespace headscope::test {

inline constexpr int64_t kContext = 64, kExamples = 24, kHeads = 3;

inline const size_t kPatterns = standard_patterns().size();

struct Probe {
  InductionBatch batch;
  ProbePlan plan;
};

inline Probe make_probe(ControlPositions controls = ControlPositions::kMeasuredWithoutSpecial) {
  const ProbeOptions options = resolved({.vocab_size = 512,
                                         .context = kContext,
                                         .examples = kExamples,
                                         .micro_batch = 10,
                                         .controls = controls});
  const InductionBatch batch = induction_batch({.examples = kExamples,
                                                .context = kContext,
                                                .token_low = options.token_low,
                                                .token_high = options.token_high});
  return {batch, plan_probe(batch.tokens, options)};
}

/// Attention of one layer whose scores are `bias` alone (q = 0): [N, H, T, T] additive, or none.
/// Given as `call` what else it is of.
inline LayerCapture capture_of(const ProbePlan& plan, const at::Tensor& bias,
                               AttentionCall call = {}) {
  LayerCapture layer;
  int64_t begin = 0;
  for (size_t c = 0; c < plan.chunks.size(); ++c) {
    const auto& chunk = plan.chunks[c];
    const int64_t n = chunk.tokens.size(0);
    const at::Tensor zero = at::zeros({n, kHeads, plan.context, 2});
    if (bias.defined()) call.bias = bias.narrow(0, begin, n);
    layer.attention.push_back(
        attention_mass(zero, zero, chunk.rows, chunk.targets, chunk.offsets, plan.groups, call));
    layer.seen.push_back(seen_keys(chunk.rows, plan.context, call));
    if (plan.queries.queries > 0) {
      const auto& asked = plan.queries.chunks[c];
      layer.query_attention.push_back(attention_mass(zero, zero, asked.rows, asked.targets,
                                                     asked.offsets, plan.queries.groups(), call));
      layer.query_seen.push_back(seen_keys(asked.rows, plan.context, call));
    }
    begin += n;
  }
  capture_spectrum(layer.spectrum,
                   at::randn({kExamples, kHeads, 1, 4}, at::detail::createCPUGenerator(1)), {});
  return layer;
}

inline std::vector<HeadReading> blank() {
  std::vector<HeadReading> readings(kHeads);
  for (auto& reading : readings) reading.patterns.resize(kPatterns);
  return readings;
}

/// Mean of `figure` over the sampled queries.
template <typename Figure>
double over_queries(const ProbePlan& plan, const Figure& figure) {
  double sum = 0;
  int64_t queries = 0;
  for (const auto& chunk : plan.queries.chunks) {
    for (int64_t i = 0; i < chunk.rows.numel(); ++i, ++queries)
      sum += figure(static_cast<double>(chunk.rows.const_data_ptr<int64_t>()[i]));
  }
  return sum / static_cast<double>(queries);
}

/// Head 1 scores the induction target `c` above everything else.
inline at::Tensor induction_bias(const InductionBatch& batch, double c) {
  at::Tensor bias = at::zeros({kExamples, kHeads, kContext, kContext});
  for (int64_t n = 0; n < kExamples; ++n) {
    bias[n][1][kContext - 1][batch.pair_position[static_cast<size_t>(n)] + 1] = c;
  }
  return bias;
}

/// The same layer where every token sees the last `window` keys alone.
inline LayerCapture windowed(const ProbePlan& plan, const at::Tensor& bias, int64_t window) {
  return capture_of(plan, bias, {.window = window});
}

}  // namespace headscope::test
