#pragma once

#include <map>
#include <string>
#include <vector>

#include "csrc/monitor/analysis/calibrations.h"
#include "csrc/monitor/analysis/verification.h"
#include "headscope/snapshot.h"
#include "headscope/trajectory.h"

namespace headscope {

/// Heads of a layer and the width of each.
struct LayerShape {
  int64_t heads = 0, width = 0;
  bool operator==(const LayerShape&) const = default;
};

/// What the analysis must know to go on as if never interrupted.
struct AnalysisState {
  int64_t segment = 0;
  std::string integral_axis;
  std::string probe_definition;
  std::vector<HeadId> probe_heads;  ///< the tracker's order
  std::map<HeadId, std::vector<TrajectoryPoint>> trajectories;
  std::map<int64_t, LayerShape> shapes;
  std::string tracker;         ///< CircuitTracker::save(), empty without a probe
  std::string specialisation;  ///< SpecialisationTracker::save()
  std::vector<Event> events, pending_events;
  std::vector<AblationReport> ablations, pending_ablations;
  Calibrations calibrations;
  std::vector<HeadReading> last_probe_heads;  ///< without eigenvalues
};

/// CBOR with doubles bit for bit (NaN as one NaN), and a version. decode throws std::runtime_error
/// on other bytes.
std::string encode(const AnalysisState& state);
AnalysisState decode(const std::string& bytes);

/// The same of a verification that is spread over steps.
std::string encode(const Verification& verification);
Verification decode_verification(const std::string& bytes);

}  // namespace headscope
