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

/// Family-wise null tests of every pattern over all layers whose attention can be trusted, in the
/// order of `readings` (heads left out get z = NaN). Also fills margin_z and mass_z of the
/// readings. wanted: one a pattern; alpha: of each test; floor: nats, that the margin of a pattern
/// defined by a position must clear.
std::vector<PatternNulls> test_nulls(const Capture& capture, const ProbePlan& plan,
                                     std::span<const NullsWanted> wanted, double alpha,
                                     double floor, uint64_t seed, StopDrawing stop,
                                     std::span<HeadReading> readings);

}  // namespace headscope
