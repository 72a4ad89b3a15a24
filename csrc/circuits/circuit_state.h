#pragma once

// What CircuitTracker knows, as plain data, and the head level of the state machine (docs/math.md
// section 6).

#include <cstdint>
#include <vector>

#include "headscope/circuits.h"

namespace headscope::circuits {

/// Answer of a probe to a question about a head; unknown holds every streak.
enum class Answer { kNo, kYes, kUnknown };

inline Answer negated(Answer answer) {
  if (answer == Answer::kUnknown) return answer;
  return answer == Answer::kYes ? Answer::kNo : Answer::kYes;
}

/// A probe in time; step -1: none.
struct Moment {
  int64_t step = -1;
  double tokens = kNaN;
  int64_t after = -1;  ///< step of the probe before it in the same stretch, -1: none
  int64_t probe = -1;  ///< its number: goes on where steps go back
};

/// Probes in a row that answered yes.
struct Streak {
  int64_t length = 0;
  Moment first;

  void count(Answer answer, const Moment& now) {
    if (answer == Answer::kNo) *this = {};
    if (answer != Answer::kYes) return;
    if (length++ == 0) first = now;
  }
};

/// What one probe says of one head of one pattern.
struct HeadEvidence {
  Answer emerging = Answer::kUnknown;  ///< a precursor beats its null, with the effect floor
  Answer formed = Answer::kUnknown;    ///< selectivity and mass reach the threshold
  Answer left = Answer::kUnknown;      ///< selectivity or mass fell below its part of the threshold
  Answer margin = Answer::kUnknown;    ///< the margin's test alone
  Answer mass = Answer::kUnknown;      ///< the mass's test alone
};

/// One head's life in one pattern.
struct HeadLife {
  CircuitState state = CircuitState::kDormant;  ///< dormant, emerging, formed or lost
  Streak rising, fading, forming, leaving;
  Moment formed;  ///< first probe of the streak that made it formed, last time
  /// Its last test said no: what is no pattern, a fading with distance for example, does not form.
  bool denied = false;

  void break_streaks() { rising = fading = forming = leaving = {}; }

  /// Entering changes of one probe, in order: the new state and the first probe of its streak.
  struct Change {
    CircuitState state;
    Moment first;
  };
  std::vector<Change> enter(const HeadEvidence& evidence, const Moment& now, int64_t in_a_row);
  /// The leaving change of the same probe, if there is one: to dormant or lost. Called after
  /// enter().
  std::vector<Change> leave(const HeadEvidence& evidence, const Moment& now, int64_t in_a_row);
};

/// One pattern's circuit.
struct CircuitLife {
  CircuitState state = CircuitState::kDormant;
  std::vector<HeadLife> heads;
  Moment emerging, formed, verified;
  Streak margin_run, mass_run;  ///< of any head; frozen from formation to loss
  double critical_margin_z = kNaN;
  double best_selectivity = kNaN;
  std::vector<HeadId> tried_heads;   ///< those of the last attempt since formation; empty: none
  std::vector<HeadId> judged_heads;  ///< those of the verdict that stands; empty: none does
  int64_t tried_at_probe = -1;       ///< number of the last attempt's probe, kept over a loss
  int64_t attempts = 0;              ///< since formation
  int64_t attempts_before = 0;       ///< on circuits of this pattern that were lost
  double level_spent = 0;            ///< of VerdictRule::level, by `attempts`
  std::vector<HeadId> formed_heads;  ///< at the last probe that said something of them
  int64_t formed_at_probe = -1;      ///< number of the probe at which it formed
  int64_t changed_at_probe = -1;     ///< number of the probe at which formed_heads last changed
  double not_causal_high = kNaN;  ///< upper end of the effect that a standing not_causal rests on

  bool has_formed() const {
    return state != CircuitState::kDormant && state != CircuitState::kEmerging &&
           state != CircuitState::kLost;
  }
};

/// All that changes from probe to probe.
struct TrackerState {
  std::vector<HeadId> head_ids;  ///< in order of their first probe
  std::vector<CircuitLife> circuits;
  int64_t probes = 0;
  int64_t stretch = 0;
  Moment now;
};

/// What stays fixed over a run.
struct TrackerSetup {
  std::vector<Pattern> patterns;
  std::vector<int64_t> contexts;  ///< one for each pattern
  CircuitRules rules;

  double threshold(size_t pattern) const;
};

/// Throws std::invalid_argument naming the rule and its value.
void validate_rules(const CircuitRules& rules);

/// Reads the evidence on head number `head` of the probe.
HeadEvidence weigh(const TrackerSetup& setup, const ProbeEvidence& probe, size_t pattern,
                   size_t head);

/// The tests of a pattern at a probe; both absent where the probe has none.
PatternNulls nulls_of(const ProbeEvidence& probe, size_t pattern);

/// The rule behind a change to `state`, in words.
std::string rule_text(const TrackerSetup& setup, const ProbeEvidence& probe, size_t pattern,
                      CircuitState state);

/// Figures of one head at one probe, with thresholds and test results; those that are not known are
/// left out.
std::map<std::string, double> figures_of(const TrackerSetup& setup, const TrackerState& state,
                                         const ProbeEvidence& probe, size_t pattern, size_t head);

/// Figures of a report that a verdict rests on.
std::map<std::string, double> figures_of(const AblationReport& report);

/// CBOR, versioned. restore() throws std::runtime_error naming the first difference between the
/// saved setup and `setup`.
std::string serialise(const TrackerSetup& setup, const TrackerState& state);
TrackerState restore(const TrackerSetup& setup, const std::string& bytes);

}  // namespace headscope::circuits
