#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "csrc/monitor/taps/capture.h"
#include "headscope/circuits.h"
#include "headscope/snapshot.h"

namespace headscope {

/// Which of a pattern's two tests a probe is to make.
struct NullsWanted {
  bool margin = true;
  bool mass = true;
};

/// How the tests of a probe are run.
struct NullTestSettings {
  double alpha = 0;  ///< of each test
  double floor = 0;  ///< nats, that the margin of a pattern defined by a position must clear
  uint64_t seed = 0;
  int64_t draws = 0;  ///< of max_statistic_test
  StopDrawing stop = StopDrawing::kWhenClear;
};

/// Family-wise null tests of every pattern over all layers whose attention can be trusted, in the
/// order of `readings` (heads left out get z = NaN). Also fills margin_z and mass_z of the
/// readings. Tests rest on the chunks that ran. wanted: one a pattern.
std::vector<PatternNulls> test_nulls(const Capture& capture, const ProbePlan& plan,
                                     std::span<const NullsWanted> wanted,
                                     const NullTestSettings& settings,
                                     std::span<HeadReading> readings);

}  // namespace headscope
