#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"

namespace headscope {

/// The planted A B ... A batch of the reference protocol (section 1), bit for bit with its
/// defaults.
struct InductionBatchOptions {
  int64_t examples = 2000;
  int64_t context = 256;    ///< T; at least 16
  int64_t token_low = 100;  ///< tokens are drawn from [token_low, token_high)
  int64_t token_high = 10000;
  int64_t pair_low = -1;  ///< A's position is drawn from [pair_low, T / 2); -1: 20 T / 256, the
                          ///< reference's 20 at T = 256
  uint32_t seed = 42;
  int64_t window = 0;  ///< > 0, at least 16: the pair is planted as in a context of the last W =
                       ///< min(window, T) tokens: A in T - W + [20 W / 256, W / 2)
};

struct InductionBatch {
  at::Tensor tokens;                   ///< [N, T] i64; the last token of a row is A
  std::vector<int64_t> target_token;   ///< [N] B, what should follow
  std::vector<int64_t> pair_position;  ///< [N] position of the planted A; B follows it
};

/// Throws std::invalid_argument naming the value: context < 16, an empty range, fewer than 4 token
/// values.
HEADSCOPE_API InductionBatch induction_batch(const InductionBatchOptions& options);

/// Uniform tokens in [low, high), [N, T]: the batch of the PR null (same N).
HEADSCOPE_API at::Tensor random_tokens(int64_t examples, int64_t context, int64_t low, int64_t high,
                                       uint32_t seed);

/// Rows that repeat their first P tokens: x_0 .. x_{P-1} x_0 .. x_{P-1} .., P = period, or context
/// / 2 when 0 (odd T: the last token starts a third copy). source [M, >= P] i64: the first P tokens
/// of row i mod M are used.
HEADSCOPE_API at::Tensor repeated_block(const at::Tensor& source, int64_t examples, int64_t context,
                                        int64_t period = 0);

/// What a selectivity is divided by (docs/math.md section 4). Names are carried in every record.
enum class ControlPositions {
  kMeasuredWithoutSpecial,  ///< mean attention on all positions but first, self, the five before,
                            ///< and every pattern's targets (default)
  kMeasuredAll,             ///< mean attention on every position but the pattern's own targets
  kReference50,             ///< the reference's 50 fixed positions, planted pair not excluded
  kAnalytic,                ///< 1 / (T - 1)
};
HEADSCOPE_API const char* to_string(ControlPositions controls);

/// The reference's fixed control positions at any T: RandomState(0), uniform in [1, T-1), rejecting
/// 0, T-1 .. T-6 and repeats, until 50 (or until none is left).
HEADSCOPE_API std::vector<int64_t> reference_control_positions(int64_t context);

/// What the monitor's probe consists of.
struct ProbeOptions {
  int64_t vocab_size = 0;    ///< required
  int64_t context = 0;       ///< required, 16 .. the model's trained context
  int64_t examples = 128;    ///< N planted rows, and as many rows of tokens uniform over the
                             ///< vocabulary for the PR null
  int64_t micro_batch = 64;  ///< rows per forward call
  int64_t token_low = -1;  ///< -1: the reference's 100, or vocab_size / 10 of a smaller vocabulary
  int64_t token_high =
      -1;  ///< -1: the reference's 10000, or the vocabulary's end; above the vocabulary: refused
  uint32_t seed = 42;
  std::vector<Pattern> patterns = standard_patterns();
  ControlPositions controls = ControlPositions::kMeasuredWithoutSpecial;
  bool pr_null = true;  ///< run the random-token rows too (doubles the probe's forwards)
  bool verify = true;   ///< ablate formed circuits on a held-out probe
  at::Tensor held_out =
      {};  ///< [M, >= context / 2] i64 real tokens for the repeated block; undefined: random tokens
  int64_t window = 0;  ///< the smallest sliding window of the layers in which induction should be
                       ///< found, at least 16; 0: none. Planted pairs, controls and the repeat lie
                       ///< within it, and thresholds scale with it instead of T
};

/// Fills defaults and checks; throws std::invalid_argument naming value and fix.
HEADSCOPE_API ProbeOptions resolved(ProbeOptions options);

}  // namespace headscope
