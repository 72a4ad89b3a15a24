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
  std::vector<CircuitReading> circuits;  ///< after all that was said in it

  const CircuitReading& circuit(const std::string& pattern) const;
};

/// Heads that a screen of one probe finds: at or above the recall threshold that the run has last
/// calibrated.
struct ScreenedProbe {
  Moment at;
  std::map<std::string, std::vector<HeadId>> heads;  ///< by pattern; none without a threshold
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
  std::vector<std::string> changes;           ///< of its definition within the run, in words
  std::vector<Moment> probes;                 ///< in the order of the run
  Moment end;                                 ///< last probe
  std::vector<CircuitReading> circuits;       ///< at the end, in the order of the patterns
  std::map<HeadId, double> integrals;         ///< of the participation ratio, at it; NaN: not known
  std::map<int32_t, int64_t> heads_of_layer;  ///< how many heads each layer has
  std::vector<Event> head_events;             ///< on patterns, in the order of the run
  std::vector<AblationReport> ablations;      ///< likewise
  std::vector<RunPart> parts;                 ///< at least one
  std::vector<ScreenedProbe> screens;         ///< of every probe, in the order of the run

  int64_t heads() const;
  /// The circuit of a pattern; throws InputError when the run has none of that name.
  const CircuitReading& circuit(const std::string& pattern) const;
};

/// Whether a circuit has come to be: formed, or a verdict on it.
bool has_formed(CircuitState state);
/// The heads of a circuit that has formed; none of any other.
std::vector<HeadId> formed_heads(const CircuitReading& circuit);

/// Reads a run directory. shifts: steps at which the user says that new data begins. Throws
/// InputError when there is no probe in it, or when no probe lies before or after a shift.
ComparedRun read_compared_run(const std::string& directory, const std::vector<int64_t>& shifts);

/// In which points two runs are of different definitions, with both values and the fix; what one
/// of them does not know differs from nothing.
std::vector<std::string> differences(const ComparedRun& run, const ComparedRun& other);

}  // namespace headscope::cli
