#pragma once

#include <cstdint>
#include <span>

#include "headscope/export.h"
#include "headscope/snapshot.h"

namespace headscope {

/// How alike two sets of heads are (docs/math.md, Across runs).
///
///   J = |A and B| / |A or B|         1 when both are empty (the reference's convention)
///
/// The order does not count; a head that is given twice counts once.
HEADSCOPE_API double jaccard(std::span<const HeadId> a, std::span<const HeadId> b);

/// What jaccard() is on average of two independent uniform sets of a and b out of `heads` heads.
///
///   sum over k of P(k) k / (a + b - k),      P(k) hypergeometric
///
/// Throws std::invalid_argument unless 0 <= a, b <= heads.
HEADSCOPE_API double expected_jaccard(int64_t a, int64_t b, int64_t heads);

/// Spearman's rank correlation of pairs, -1..1; equal values share the mean of their ranks.
///
/// a, b  [n], the same length; a pair with a value that is not finite is left out
///
/// NaN with fewer than 3 pairs, or when all values of one side are equal. Throws
/// std::invalid_argument when the lengths differ. Cost: n log n.
HEADSCOPE_API double spearman(std::span<const double> a, std::span<const double> b);

}  // namespace headscope
