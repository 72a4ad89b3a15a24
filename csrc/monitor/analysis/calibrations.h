#pragma once

#include <map>
#include <string>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope {

/// What screens have calibrated, on its way to the history, and the recall thresholds that stand.
struct Calibrations {
  std::vector<NullCalibration> pending;             ///< for the next snapshot
  std::map<std::string, double> recall_thresholds;  ///< by pattern

  /// standing: the screen's rows are the probe's, whose circuits have these thresholds from now on.
  void take(const std::vector<NullCalibration>& nulls, bool standing);
  /// Gives circuits the thresholds that stand.
  void mark(std::vector<CircuitReading>& circuits) const;
  /// Hands over what is pending, and marks the snapshot's circuits.
  void enter(Snapshot& snapshot);
};

}  // namespace headscope
