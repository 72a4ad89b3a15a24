#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "headscope/export.h"
#include "headscope/snapshot.h"

namespace headscope {

/// The x axis of the integral of the participation ratio (docs/math.md section 3). Integrals over
/// different axes differ by orders of magnitude: every record names its own.
enum class IntegralAxis {
  /// x = ln(max(tokens, floor)); a reading at 0 tokens has no place (the paper's text).
  kLnTokens,
  /// x = ln(max(tokens / 1e9, 1)): training before 1e9 tokens adds nothing (the reference code).
  kLnTokensClamped1b,
  /// x = step (the reference's 124M script).
  kStep,
};

/// "ln_tokens", "ln_tokens_clamped_1b", "step".
HEADSCOPE_API const char* to_string(IntegralAxis axis);
/// The reverse; throws std::invalid_argument naming the value and the three choices.
HEADSCOPE_API IntegralAxis integral_axis_from_string(const std::string& name);

/// What an integral means: trapezoids of max(PR - 1, 0) over the axis. A reading without a place on
/// the axis (tokens not known, or 0 under kLnTokens) is left out of it; the other features see it.
struct IntegralDefinition {
  IntegralAxis axis = IntegralAxis::kLnTokens;
  double floor_tokens = 1.0;  ///< `floor` of kLnTokens; no other axis uses it
};

/// One reading of one head.
struct TrajectoryPoint {
  int64_t step = 0;
  double tokens = kNaN;
  double participation_ratio = kNaN;
  /// Begins another stretch of the run (a second data phase), which may count its steps anew.
  bool begins_stretch = false;
};

/// Whether a reading has a place on the axis.
HEADSCOPE_API bool on_axis(const IntegralDefinition& definition, const TrajectoryPoint& point);

/// Features of a head's trajectory of participation ratios (protocol section 4).
struct TrajectoryFeatures {
  double integral = 0;  ///< unit of the axis
  double final_value = kNaN;
  double max = kNaN;
  double min = kNaN;
  double spread = kNaN;  ///< max - min
};

/// Participation ratios of one head, in order of step within each stretch.
///
/// A reading at or before the last step supersedes what lay there and after in its stretch (a
/// resumed run replays steps). A non-finite ratio is not kept. The integral is the left-to-right
/// sum of its trapezoids, so a trajectory restored from its points gives the same bits. It never
/// runs backwards: a reading that lies before the one before it adds nothing, and the sum goes on
/// from there. Not thread-safe.
class Trajectory {
 public:
  /// Throws std::invalid_argument unless floor_tokens is finite and above 0.
  HEADSCOPE_API explicit Trajectory(IntegralDefinition definition = {});

  /// Returns false when the reading was left out (a ratio that is not finite).
  HEADSCOPE_API bool add(const TrajectoryPoint& point);
  double integral() const { return integral_; }
  HEADSCOPE_API TrajectoryFeatures features() const;
  const std::vector<TrajectoryPoint>& points() const { return points_; }
  const IntegralDefinition& definition() const { return definition_; }

 private:
  void append(const TrajectoryPoint& point);

  IntegralDefinition definition_;
  std::vector<TrajectoryPoint> points_;
  double integral_ = 0;
  // Place and height of the last reading that has one.
  std::optional<std::pair<double, double>> last_on_axis_;
};

/// A head's place among others.
struct RankedHead {
  HeadId id;
  TrajectoryFeatures features;
  int64_t rank = 0;  ///< 1: largest integral; ties by id
};

/// Ranks heads by integral, largest first; what `headscope rank` prints.
HEADSCOPE_API std::vector<RankedHead> rank_by_integral(const std::map<HeadId, Trajectory>& heads);

}  // namespace headscope
