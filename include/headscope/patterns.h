#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"

namespace headscope {

/// How the null of a pattern's precursor is drawn (docs/math.md section 5).
enum class NullKind {
  kPermuteTargets,  ///< targets permuted across rows: the position marginal is the same (induction,
                    ///< duplicate-token)
  kUniformControls,  ///< each row's target redrawn among its control positions (patterns defined by
                     ///< a position)
};

/// The behaviour whose loss an ablation is judged by; kNone: the pattern's life ends at `formed`.
enum class BehaviourMetric { kNone, kPlantedLoss, kRepeatedLoss };

/// "none", "planted_loss", "repeated_loss".
HEADSCOPE_API const char* to_string(BehaviourMetric metric);

/// Stands for a token before the query that is hidden from it: of another document, padding, or
/// beyond the window.
inline constexpr int64_t kUnseenToken = -1;

/// Key positions in [0, query] that a head of the pattern attends to from `query`; empty: the row
/// does not count. tokens: the row, [T], with kUnseenToken for what the query cannot attend to.
/// Must be deterministic; called for the sampled rows of measured steps, on the training thread.
using TargetFunction =
    std::function<std::vector<int64_t>(std::span<const int64_t> tokens, int64_t query)>;

/// An attention pattern: a name, its targets, and what it takes to be called formed.
struct Pattern {
  std::string name;  ///< [a-z0-9_-], becomes the label value `pattern`
  TargetFunction targets;
  double formed_at_256 =
      30.0;  ///< selectivity for `formed` at T = 256; x(T) = x(256) (T - 1) / 255
  NullKind null = NullKind::kPermuteTargets;
  BehaviourMetric metric = BehaviourMetric::kNone;
};

/// induction (50x, planted_loss), previous-token (100x, repeated_loss), duplicate-token (30x,
/// repeated_loss), first-token, self, local (30x, no metric), in this order, which breaks ties of
/// the class. Targets from query t: induction: after the earlier occurrences of tokens[t];
/// duplicate: those occurrences; previous: t-1; self: t; first: 0; local: t-5..t-2. On the planted
/// probe (one earlier A) they are the protocol's.
HEADSCOPE_API std::vector<Pattern> standard_patterns();

/// Refuses duplicate or malformed names and missing functions; throws std::invalid_argument naming
/// the value.
HEADSCOPE_API void validate_patterns(std::span<const Pattern> patterns);

}  // namespace headscope
