#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"

namespace headscope {

/// The batch of planted pairs A B ... A: the reference protocol's (section 1), bit for bit with its
/// defaults.
struct InductionBatchOptions {
  int64_t examples = 2000;
  int64_t context = 256;    ///< T; at least 16
  int64_t token_low = 100;  ///< tokens are drawn from [token_low, token_high)
  int64_t token_high = 10000;
  /// A's position is drawn from [pair_low, T / 2). -1: 20 T / 256, the reference's 20 at T = 256.
  int64_t pair_low = -1;
  uint32_t seed = 42;
  /// > 0, at least 16: the pair is planted as in a context of the last W = min(window, T) tokens, A
  /// in T - W + [20 W / 256, W / 2).
  int64_t window = 0;
};

struct InductionBatch {
  at::Tensor tokens;                   ///< [N, T] i64; the last token of a row is A
  std::vector<int64_t> target_token;   ///< [N] B, what should follow
  std::vector<int64_t> pair_position;  ///< [N] position of the planted A; B follows it
};

/// Draws the batch. Throws std::invalid_argument naming the value: context < 16, an empty range,
/// fewer than 4 token values.
HEADSCOPE_API InductionBatch induction_batch(const InductionBatchOptions& options);

/// Uniform tokens in [low, high), [examples, context] i64: the batch of the participation ratio's
/// null.
HEADSCOPE_API at::Tensor random_tokens(int64_t examples, int64_t context, int64_t low, int64_t high,
                                       uint32_t seed);

/// Rows that repeat their first P tokens, x_0 .. x_{P-1} x_0 .. x_{P-1} .., [examples, context]
/// i64.
///
/// source  [M, >= P] i64: row i repeats the first P tokens of source row i mod M
/// period  P; 0: context / 2 (odd context: the last token starts a third copy)
HEADSCOPE_API at::Tensor repeated_block(const at::Tensor& source, int64_t examples, int64_t context,
                                        int64_t period = 0);

/// What a selectivity is divided by (docs/math.md section 4). Every snapshot names it.
enum class ControlPositions {
  /// Mean attention on all positions but the first, the query, the five before it, and every
  /// pattern's targets.
  kMeasuredWithoutSpecial,
  /// Mean attention on every position but the pattern's own targets.
  kMeasuredAll,
  /// Mean attention on the reference's 50 fixed positions, the planted pair not excluded.
  kReference50,
  /// 1 / (T - 1).
  kAnalytic,
};
/// "measured_without_special", "measured_all", "reference_50", "analytic".
HEADSCOPE_API const char* to_string(ControlPositions controls);

/// The reference's fixed control positions for a context T: RandomState(0), uniform in [1, T - 1),
/// rejecting 0, T - 6 .. T - 1 and repeats, until there are 50 or none is left.
HEADSCOPE_API std::vector<int64_t> reference_control_positions(int64_t context);

/// What the monitor's probe consists of.
struct ProbeOptions {
  int64_t vocab_size = 0;    ///< required
  int64_t context = 0;       ///< required, 16 .. the model's trained context
  int64_t examples = 128;    ///< N, planted rows
  int64_t micro_batch = 64;  ///< rows for each forward call
  /// Planted rows draw their tokens from [token_low, token_high). -1: the reference's 100 and
  /// 10000; with at most 1000 tokens from vocab_size / 10, with at most 10000 up to vocab_size.
  int64_t token_low = -1;
  int64_t token_high = -1;
  uint32_t seed = 42;
  std::vector<Pattern> patterns = standard_patterns();
  /// Query positions of each row, 0..16, at which patterns defined by a position are read. 0: at
  /// the last token only, as the reference does (and with kReference50 always); then nothing tells
  /// them from a fixed position, and they have no test.
  int64_t position_queries = 4;
  ControlPositions controls = ControlPositions::kMeasuredWithoutSpecial;
  /// Runs N rows of tokens uniform over the vocabulary too, for the participation ratio's null.
  /// Doubles the probe's forwards.
  bool pr_null = true;
  /// Ablates formed circuits, on a probe of other tokens.
  bool verify = true;
  /// [M, >= context / 2] i64 real tokens for the repeated block, 8 distinct stretches of context /
  /// 2 at least; undefined: random tokens. Each attempt on a circuit takes rows that earlier ones
  /// have not used, as long as there are such: give 2 examples or more.
  at::Tensor held_out = {};
  /// The smallest sliding window of the layers in which induction should be found, at least 16; 0:
  /// none. Planted pairs, controls and the repeat lie within it, and thresholds scale with it
  /// instead of T.
  int64_t window = 0;
};

/// The options with all defaults filled in. Throws std::invalid_argument naming value and fix.
HEADSCOPE_API ProbeOptions resolved(ProbeOptions options);

}  // namespace headscope
