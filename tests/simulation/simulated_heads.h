#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headscope/patterns.h"

namespace headscope::simulation {

/// Where the scores of a kind of head come from: content drawn anew for every query, key and probe,
/// and effects that a run draws once. Nats.
struct Recipe {
  std::string name;
  double content = 1;           ///< standard deviation of the scores; of t3 the scale
  bool heavy_tails = false;     ///< Student's t with 3 degrees of freedom, instead of normal
  double position_effects = 0;  ///< standard deviation of an effect of the key's position
  double token_effects = 0;     ///< and of its token
  double recency = 0;           ///< fall of the score per token of distance
  double sink = 0;              ///< on key 0
  double fixed_position = 0;    ///< on one key position, `fixed_at`, at every query that sees it
  double fixed_at = 0;          ///< as a part of T; 1: at T - 2
  /// Head 0 alone prefers the targets of this pattern; empty: none does.
  std::string preferred = {};
  double preference = 1;  ///< factor on the targets' exp(score)
};

struct Extent {
  int64_t heads = 16, rows = 64, context = 64, probes = 6;
  int64_t probes_in_a_row = 1;
};

/// What a run called, by pattern: the probe (from 1) at which its first head became so.
struct Calls {
  std::map<std::string, int64_t> emerging, formed;
};

/// The standard patterns and two of a user's with several targets: "same-class", permuted (keys
/// whose token is the query's modulo 10), and "strided", bounded (each fourth key back, 4 to 8).
std::vector<Pattern> probed_patterns();

/// One run: Analysis takes probes of simulated heads, planned as the monitor does, with its rules
/// as shipped but for probes_in_a_row.
Calls simulate(const Recipe& recipe, const Extent& extent, uint64_t seed);

}  // namespace headscope::simulation
