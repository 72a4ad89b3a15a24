#include "csrc/monitor/analysis/calibrations.h"

#include <cmath>
#include <utility>

#include "csrc/monitor/analysis/analysis.h"

namespace headscope {

void Calibrations::take(const std::vector<NullCalibration>& nulls, bool standing) {
  pending.insert(pending.end(), nulls.begin(), nulls.end());
  for (const NullCalibration& null : nulls)
    if (standing && !std::isnan(null.recall_threshold))
      recall_thresholds[null.pattern] = null.recall_threshold;
}

void Calibrations::mark(std::vector<CircuitReading>& circuits) const {
  for (CircuitReading& circuit : circuits) {
    const auto known = recall_thresholds.find(circuit.pattern);
    if (known != recall_thresholds.end()) circuit.recall_threshold = known->second;
  }
}

void Calibrations::enter(Snapshot& snapshot) {
  snapshot.calibrations = std::exchange(pending, {});
  mark(snapshot.circuits);
}

void Analysis::take_calibrations(const std::vector<NullCalibration>& nulls, bool standing) {
  const std::scoped_lock lock(mutex_);
  calibrations_.take(nulls, standing);
}

}  // namespace headscope
