#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "headscope/probe_batch.h"

namespace headscope {

/// Sampled query positions of a probe's rows, at which patterns defined by a position are read: at
/// one and the same position a head that likes a fixed key cannot be told from one that follows the
/// query.
///
/// Groups of a query, for the n patterns with NullKind::kEffectBound, in order:
///   [0, n)   the targets of pattern i
///   [n, 2n)  the nearest keys beside them that are no targets, three or as many as there are
///            targets: attention that fades with distance has no margin over these
///   2n       ordinary keys: all but the first, the query, the five before it, and every pattern's
///            targets
struct QueryPlan {
  struct Chunk {
    at::Tensor rows;     ///< [n, queries], ascending
    at::Tensor targets;  ///< arguments of attention_mass
    at::Tensor offsets;
  };

  int64_t queries = 0;           ///< of a row; 0: none, these patterns are read at the last token
  std::vector<size_t> patterns;  ///< their numbers among the probe's
  int64_t span = 0;              ///< 1 + harmonic mean of the keys before a query: thresholds' T
  std::vector<Chunk> chunks;     ///< as the probe's

  int64_t groups() const { return 2 * static_cast<int64_t>(patterns.size()) + 1; }
  int64_t target_group(size_t i) const { return static_cast<int64_t>(i); }
  int64_t beside_group(size_t i) const { return static_cast<int64_t>(patterns.size() + i); }
  int64_t ordinary_group() const { return groups() - 1; }
  /// Keys of a group of query r of row n, by the plan.
  static int64_t keys(const Chunk& chunk, int64_t query_group) {
    const int64_t* offset = chunk.offsets.const_data_ptr<int64_t>() + query_group;
    return offset[1] - offset[0];
  }
};

/// Where the chunks of a probe's rows end: a quarter of them first, where probes may end early,
/// then micro-batches.
std::vector<int64_t> chunk_ends(const ProbeOptions& options, int64_t examples);

/// Plans the queries of `tokens` [N, T] i64: options.position_queries of each row, one in each
/// stretch of equal length from max(T / 4, 12) to T - 2, a function of options.seed. options:
/// resolved().
QueryPlan plan_queries(const at::Tensor& tokens, const ProbeOptions& options);

}  // namespace headscope
