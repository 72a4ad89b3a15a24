#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::cli {

/// A place in a run.
struct Moment {
  int64_t step = -1;
  double tokens = kNaN;
};

/// A part of a run: what comes before a step goes back, or before a step that the user names.
struct RunPart {
  Moment begin, end;                     ///< first and last probe
  std::vector<CircuitReading> circuits;  ///< after the last probe
};

/// Heads that a screen of one probe finds: at or above the recall threshold that the run has last
/// calibrated.
struct ScreenedProbe {
  Moment at;
  std::vector<std::vector<HeadId>> heads;  ///< by pattern; empty for one without a threshold
};

/// Something that must be the same in runs that are compared.
struct DefinitionItem {
  std::string what;
  std::string value;
  std::string fix;
  bool known = true;  ///< false: the history does not say, which differs from nothing
};

/// What `headscope compare` needs of a run's history.
struct ComparedRun {
  std::string directory, name;
  std::vector<DefinitionItem> definition;
  int64_t probes = 0;
  Moment end;                                 ///< last probe
  Moment reached;                             ///< farthest: a step or tokens may go back
  std::vector<CircuitReading> circuits;       ///< after it, in the order of the patterns
  std::map<HeadId, double> integrals;         ///< of the participation ratio, at it; NaN: not known
  std::map<int32_t, int64_t> heads_of_layer;  ///< how many heads each layer has
  std::vector<Event> head_events;             ///< on patterns, in the order of the run
  std::vector<AblationReport> ablations;      ///< likewise
  std::vector<RunPart> parts;                 ///< at least one
  std::vector<ScreenedProbe> screens;         ///< of every probe, in the order of the run

  int64_t heads() const;
};

/// Whether a circuit has come to be: formed, or a verdict on it.
bool has_formed(CircuitState state);
/// The heads of a circuit that has formed; none of any other.
std::vector<HeadId> formed_heads(const CircuitReading& circuit);

/// Reads a run directory. shifts: steps at which the user says that new data begins. Throws
/// InputError when there is no probe in it, when its probes are of several definitions, or when no
/// probe lies before or after a shift.
ComparedRun read_compared_run(const std::string& directory, const std::vector<int64_t>& shifts);

/// Throws InputError naming both values and the fix when the run is of another definition.
void check_definition(const ComparedRun& run, const ComparedRun& first);

}  // namespace headscope::cli
