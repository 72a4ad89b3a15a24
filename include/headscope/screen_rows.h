#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"
#include "headscope/snapshot.h"

namespace headscope {

/// A pattern's targets in the rows of a screen.
struct ScreenTargets {
  std::string pattern;
  std::vector<std::vector<int64_t>> positions;  ///< [N], each below or at the query; empty: the row
                                                ///< does not count for this pattern
};

/// Where a screen looks: a query in each row, and what it is asked about.
struct ScreenRows {
  int64_t context = 0;                         ///< T
  std::vector<int64_t> query;                  ///< [N]
  std::vector<ScreenTargets> patterns;         ///< in the order of the readings
  std::vector<std::vector<int64_t>> controls;  ///< [N] ordinary positions; may repeat
};

/// Which positions a selectivity is divided by.
enum class ScreenControls {
  kOrdinary,     ///< every position in [1, query) that is no target of any pattern in this row
  kReference50,  ///< the reference's 50 draws with RandomState(0)
};

/// Rows of a batch of planted pairs, all asked from T - 1 (reference protocol section 3a).
///
///   induction p + 1, previous-token T - 2, duplicate-token p, first-token 0, self T - 1,
///   local T - 6 .. T - 3
///
/// pair_position  [N] p, of the planted A (InductionBatch::pair_position)
/// tokens         [N, T] row-major. Where given, a row in which A or B stands once more before the
///                last token does not count for induction and duplicate-token: its targets are not
///                all there are
///
/// kReference50 draws the positions once for all rows, uniform in [1, T - 1) without 0 and T - 6 ..
/// T - 1; planted pairs are not left out, hence the reference's ceiling of 238 for induction.
/// Throws std::invalid_argument naming the row and the value.
HEADSCOPE_API ScreenRows planted_screen_rows(std::span<const int64_t> pair_position,
                                             int64_t context, ScreenControls controls,
                                             std::span<const int64_t> tokens = {});

/// Rows of real text, each asked from its own query q about its first T at f (section 3b).
///
///   induction f + 1, previous-token q - 1, duplicate-token f, first-token 0, self q,
///   local q - 5 .. q - 2
///
/// first, query  [N] f and q (NaturalInductionBatch); f + 1 < q, 6 <= q < T
///
/// kReference50 draws for each row in turn, up to 200 times uniform in [1, q), leaves out all the
/// row's targets and fills up with its last draw. Throws std::invalid_argument naming the row and
/// the value.
HEADSCOPE_API ScreenRows natural_screen_rows(std::span<const int64_t> first,
                                             std::span<const int64_t> query, int64_t context,
                                             ScreenControls controls);

/// Rows of any batch, asked about any patterns by their own target functions: the user's patterns,
/// or the standard ones from queries that differ (DuplicateTokenBatch, IndirectObjectBatch).
///
/// tokens  [N, T] row-major
/// query   [N] in [1, T)
///
/// Controls are the positions in [1, query) that are no target of any pattern given: give the
/// standard patterns too where their targets are to be left out. Throws std::invalid_argument that
/// names the row and the value, also when a pattern's target lies beyond the query.
HEADSCOPE_API ScreenRows pattern_screen_rows(std::span<const int64_t> tokens, int64_t context,
                                             std::span<const int64_t> query,
                                             std::span<const Pattern> patterns);

/// Attention of head number `head` from every row's query: [N, T], innermost last. Read before the
/// next call.
using HeadAttention = std::function<std::span<const float>(size_t head)>;

/// Selectivity, mass and control mass of each head on each pattern of `rows`.
///
///   selectivity = mean over rows of the mean attention on a row's targets
///                 / max(mean over the same rows of the mean attention on its controls, 1e-8)
///
/// heads      what the readings are called; attention is asked for 0 .. heads.size() - 1
///
/// A ratio of means of rows, so a uniform head reads 1 whatever the queries. Rows without controls
/// do not count. NaN in a row that counts makes that head's figures NaN. Throws
/// std::invalid_argument when an attention matrix has another size.
HEADSCOPE_API std::vector<HeadReading> screen_readings(const ScreenRows& rows,
                                                       std::span<const HeadId> heads,
                                                       const HeadAttention& attention);

}  // namespace headscope
