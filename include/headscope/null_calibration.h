#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/screen_rows.h"

namespace headscope {

/// How a null draw of a selectivity chooses the targets.
enum class NullTargets {
  /// Each row's targets are those of another row, by one permutation of all rows. Keeps how often
  /// each position is a target, so a head that likes a position does not pass. What the row cannot
  /// see, and its own targets of any pattern, are left out of the draw.
  kPermuted,
  /// The reference's: one position a row, uniform in [1, query) without any target of the row.
  /// Mixes in near positions, so that null selectivities dip below 1.
  kUniform,
};

/// "permuted", "uniform".
HEADSCOPE_API const char* to_string(NullTargets targets);

struct SelectivityNullOptions {
  NullTargets targets = NullTargets::kPermuted;
  int64_t draws = 20;    ///< the reference's default; its published calibration has 500
  uint32_t seed = 2026;  ///< of a RandomState; draws are nested, rows innermost
};

/// Largest value, percentiles (linear between ranks, as numpy's) and median.
struct NullDistribution {
  double max = kNaN, p99 = kNaN, p95 = kNaN, median = kNaN;
};

/// One head against its own null.
struct HeadNull {
  double selectivity = kNaN;  ///< on the true targets
  NullDistribution null;
  double ratio = kNaN;  ///< selectivity / max(null.max, 1e-8)
};

/// Selectivities that heads reach without the structure.
struct SelectivityNull {
  std::string pattern;
  SelectivityNullOptions options;
  int64_t rows = 0;             ///< that count
  NullDistribution pooled;      ///< over heads and draws
  std::vector<HeadNull> heads;  ///< in the order asked
  /// What counts as above noise: max(2, pooled.p99).
  double recall_threshold = kNaN;
};

/// Null distribution of a pattern's selectivity (docs/math.md section 9).
///
///   null selectivity of a draw = mean over rows of the attention on the drawn targets
///                                / max(mean attention on the controls, 1e-8)
///
/// Both means are over the rows in which the draw has targets, so that a uniform head reads 1 where
/// queries differ, too.
///
/// pattern  index among rows.patterns; one whose targets differ between rows
/// heads    how many; attention is asked for 0 .. heads - 1, once each
///
/// All heads share the draws. A head that is not finite is NaN and left out of `pooled`. Throws
/// std::invalid_argument on no draws, an unknown pattern, permuted targets that are the same in
/// every row, or fewer than 2 rows. Cost: draws * rows * heads additions.
HEADSCOPE_API SelectivityNull calibrate_selectivity_null(const ScreenRows& rows, size_t pattern,
                                                         int64_t heads,
                                                         const HeadAttention& attention,
                                                         const SelectivityNullOptions& options);

/// Participation ratios of all heads and the number of rows they were taken over.
struct RatioSample {
  std::span<const double> participation_ratios;
  int64_t samples = 0;  ///< N
};

/// Participation ratios on structured rows against those on random tokens.
struct RatioNull {
  int64_t samples = 0;    ///< N of both
  int64_t heads = 0;      ///< with both figures
  NullDistribution null;  ///< over heads
  /// Heads whose ratio is above the null's figure over all heads.
  int64_t above_max = 0, above_p99 = 0, above_p95 = 0;
  int64_t above_own = 0;  ///< above the same head's on random tokens
};

/// Compares the participation ratios of the same heads, in the same order. Throws
/// std::invalid_argument when N differs, since the ratio grows with N (iid Gaussian, D = 64: 60.0
/// at N = 500, 63.0 at 2000), or the number of heads does.
HEADSCOPE_API RatioNull calibrate_ratio_null(const RatioSample& real, const RatioSample& null);

}  // namespace headscope
