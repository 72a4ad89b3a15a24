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
  /// Targets permuted across rows, which keeps how often each position is a target. For patterns
  /// defined by content: induction, duplicate-token.
  kPermuteTargets,
  /// None is drawn: the mean margin over rows and several query positions must lie above its floor
  /// by a family-wise lower bound. For patterns defined by a position, which nothing permutes.
  kEffectBound,
};

/// The behaviour whose loss an ablation is judged by. kNone: the circuit is never verified.
enum class BehaviourMetric { kNone, kPlantedLoss, kRepeatedLoss };

/// "none", "planted_loss", "repeated_loss".
HEADSCOPE_API const char* to_string(BehaviourMetric metric);

/// Stands for a token before the query that is hidden from it: of another document, padding, or
/// beyond the window.
inline constexpr int64_t kUnseenToken = -1;

/// Key positions in [0, query] that a head of the pattern attends to from `query`; empty: the row
/// does not count.
///
/// tokens  [T], the row's token ids, kUnseenToken for what the query cannot attend to
/// query   position of the query in the row
///
/// Must be deterministic. Called for the sampled rows of measured steps, on the training thread.
using TargetFunction =
    std::function<std::vector<int64_t>(std::span<const int64_t> tokens, int64_t query)>;

/// An attention pattern: a name, its targets, and what it takes to be called formed.
struct Pattern {
  /// Characters [a-z0-9_-]; the value of the metrics' label `pattern`.
  std::string name;
  TargetFunction targets;
  /// Selectivity for `formed` at T = 256: x(T) = x(256) (T - 1) / 255.
  double formed_at_256 = 30.0;
  NullKind null = NullKind::kPermuteTargets;
  BehaviourMetric metric = BehaviourMetric::kNone;
};

/// The patterns that are measured unless told otherwise: the table of docs/math.md section 4, from
/// induction to local. Ties of the class go to the earlier one. On the planted probe (one earlier
/// A) they are the reference protocol's.
HEADSCOPE_API std::vector<Pattern> standard_patterns();

/// Throws std::invalid_argument naming the value: a duplicate or malformed name, a missing
/// function.
HEADSCOPE_API void validate_patterns(std::span<const Pattern> patterns);

}  // namespace headscope
