#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/null_test.h"
#include "headscope/patterns.h"
#include "headscope/snapshot.h"

namespace headscope {

/// What calls a head emerging (docs/math.md section 6). Where a probe lacks the chosen test, the
/// other one counts; where no probe has any (a recorded trajectory), selectivity does.
enum class Precursor {
  kMargin,       ///< the test of the match margin
  kMass,         ///< the test of the attention mass
  kEither,       ///< whichever comes first; run each test at half the level
  kSelectivity,  ///< selectivity, without a test
};

/// "margin", "mass", "either", "selectivity".
HEADSCOPE_API const char* to_string(Precursor precursor);

/// The rules by which states change (docs/math.md section 6). Every event names them.
struct CircuitRules {
  Precursor precursor = Precursor::kMargin;
  /// Chance of any false `emerging` in a run, over all patterns, heads and probes.
  double alpha = 0.05;
  /// Probes that the run is expected to make (spent_alpha).
  int64_t planned_probes = 100;
  /// Probes that must agree before any change, entering or leaving.
  int64_t probes_in_a_row = 2;
  /// Effect that `emerging` needs besides its test, as a ratio: a margin of its ln in nats, or a
  /// selectivity. With the margin's, selectivity must reach its square root: a head may prefer the
  /// targets in its scores and yet give next to nothing to them, because it attends elsewhere.
  /// A selectivity alone where there is no test.
  double emerging_selectivity = 2;
  /// Attention mass that `formed` needs.
  double mass_floor = 0.1;
  /// A formed head is left below this part of the threshold or of the mass floor.
  double leave_fraction = 0.5;
  /// Threshold of a head's class at T = 256.
  double class_at_256 = 30;
  /// Thresholds follow the keys that share attention, x(T) = x(256) (T - 1) / 255; false: x(256)
  /// at any T.
  bool scale_to_context = true;
  /// `formed` in previous-token (previous_token) needs that class too, the best of the patterns.
  bool previous_token_by_class = false;
  /// Probes for which a circuit's heads must have stayed the same before its first verification:
  /// behaviour follows formation, and an attempt costs part of the level. One whose heads go on
  /// changing is verified after four times as many.
  int64_t settle_probes = 4;
  /// Fewest probes between two verifications of one circuit. Doubles with every further one since
  /// the circuit formed.
  int64_t retry_probes = 8;
  /// Begins the rule of every event.
  std::string name = "headscope";

  /// The paper's screens: emerging at selectivity 2, formed at 50 / 100 / 30 whatever T, the first
  /// probe counts, no mass floor, no hysteresis, no null test, previous-token by class too; name
  /// "reference".
  HEADSCOPE_API static CircuitRules reference();
};

/// The two null tests of one pattern at one probe. Without both the probe says nothing on
/// `emerging`.
struct PatternNulls {
  std::optional<NullTestResult> margin;
  std::optional<NullTestResult> mass;
};

/// One probe, as the tracker needs it.
struct ProbeEvidence {
  int64_t step = 0;
  double tokens = kNaN;
  double wall_time = kNaN;  ///< seconds since the Unix epoch
  /// In the order of earlier probes, new ones behind. Give a head that did not report as not
  /// finite.
  std::span<const HeadReading> heads;
  /// One for each pattern; empty: none was drawn (a recorded trajectory).
  std::vector<PatternNulls> nulls;
  /// Begins a new stretch of the run although the step goes on (a second data phase).
  bool new_stretch = false;
};

/// The states of every pattern's circuit and of every head in it: a deterministic function of the
/// probes and verdicts.
///
///   head level     dormant -> emerging -> formed -> lost (lost heads may emerge again)
///   pattern level  dormant -> emerging -> formed -> a verdict -> lost
///
/// A verdict is verified, not_causal, unspecific or inconclusive. It is about the heads that were
/// ablated: once most of the circuit's heads were not among them, the circuit is formed again.
///
/// docs/math.md section 6 has every transition. A NaN reading (or one that is not finite) holds a
/// head where it is: it neither advances nor breaks a streak, the probes in a row with one answer.
/// Streaks do not reach over the start of a new stretch; states do.
///
/// An event's step is the probe at which the change was certain, the last of the streak. Its
/// figures `first_step` and `first_step_after` bracket the streak's first probe. These first probes
/// are what CircuitReading reports as emerging_step and formed_step, so that their difference is a
/// lead measured alike at both ends. Not thread-safe. save() and load() copy its state.
class CircuitTracker {
 public:
  /// contexts  T of the probe that thresholds scale with, one for each pattern: patterns that are
  ///           read at several query positions have a shorter one (ProbePlan)
  /// Throws std::invalid_argument on a context < 2, no patterns, other numbers of contexts, or
  /// rules out of range.
  HEADSCOPE_API CircuitTracker(std::vector<Pattern> patterns, std::vector<int64_t> contexts,
                               CircuitRules rules = {});
  /// The same context for all patterns.
  HEADSCOPE_API CircuitTracker(std::vector<Pattern> patterns, int64_t context,
                               CircuitRules rules = {});
  HEADSCOPE_API ~CircuitTracker();
  HEADSCOPE_API CircuitTracker(CircuitTracker&&) noexcept;
  HEADSCOPE_API CircuitTracker& operator=(CircuitTracker&&) noexcept;

  /// Takes one probe, returns the events it caused: head level first, then pattern level.
  ///
  /// Figures of an event (at pattern level those of its most selective head; left out: not known):
  ///   the head         selectivity, mass, margin, participation_ratio
  ///   the thresholds   threshold, threshold_at_256
  ///   margin's test    margin_z, margin_excess, critical_z, p_value, alpha, null_rows (the probe
  ///                    rows that entered it)
  ///   mass's test      mass_z, mass_critical_z, mass_p_value, mass_alpha
  ///   the time         probe (its number), stretch, first_step, first_step_after
  ///
  /// A probe at or before the last step begins a new stretch of the run (a second data phase); it
  /// is no error. Throws std::invalid_argument when heads, patterns or nulls do not fit the
  /// tracker; its state is then unchanged.
  HEADSCOPE_API std::vector<Event> update(const ProbeEvidence& probe);

  /// A circuit that is due for verification.
  struct Due {
    size_t pattern;             ///< index among the tracker's patterns
    std::vector<HeadId> heads;  ///< its formed heads
    int64_t attempt = 0;        ///< attempts on this pattern before: which held-out rows are fresh
    double level_spent = 0;     ///< of VerdictRule::level, by those since the circuit formed
  };
  /// The circuit that should be verified next: formed without a verdict, with other heads than at
  /// its last verdict, or with a verdict other than verified; settled (settle_probes), and
  /// retry_probes after its last verification. Of several the one that has waited longest. Patterns
  /// with BehaviourMetric::kNone are never due.
  HEADSCOPE_API std::optional<Due> verification_due() const;

  /// Every circuit that has formed and has a metric, due or not.
  HEADSCOPE_API std::vector<Due> formed_circuits() const;

  /// Enters the outcome of an ablation (only of the metric that decides, AblationReport::gate),
  /// returns its events: none when nothing changed. An inconclusive one takes no verdict away. A
  /// report on a circuit that was lost meanwhile, or of which no head is formed any more, changes
  /// nothing. Throws std::invalid_argument on an unknown pattern, or a state that is no verdict.
  HEADSCOPE_API std::vector<Event> apply_verdict(const AblationReport& report, double tokens,
                                                 double wall_time);

  /// One reading for each pattern, in order.
  HEADSCOPE_API std::vector<CircuitReading> readings() const;
  /// State of one head in a pattern's circuit.
  HEADSCOPE_API CircuitState head_state(size_t pattern, HeadId head) const;
  /// Selectivity that `formed` needs for a pattern at this context.
  HEADSCOPE_API double formed_threshold(size_t pattern) const;
  HEADSCOPE_API const CircuitRules& rules() const;
  /// Probes taken so far.
  HEADSCOPE_API int64_t probes() const;

  /// Complete state as opaque, versioned bytes. load() throws std::runtime_error naming the
  /// difference when they are of another version or of other patterns, context or rules.
  HEADSCOPE_API std::string save() const;
  HEADSCOPE_API void load(const std::string& bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Which heads are specialising, whatever on (docs/math.md section 6).
///
///   excess = PR - PR of the same head on random tokens (same N)
///   specialising once excess - lowest excess so far >= rise * largest possible PR on `hold` probes
///   in a row; ends once that fails on `hold` probes in a row
///
/// Not thread-safe.
class SpecialisationTracker {
 public:
  struct Rule {
    double rise = 0.1;  ///< share of the largest possible PR
    int64_t hold = 3;   ///< probes in a row
  };
  SpecialisationTracker() = default;
  /// Throws std::invalid_argument unless rise > 0 and hold >= 1.
  HEADSCOPE_API explicit SpecialisationTracker(Rule rule);
  /// max_pr  largest possible participation ratio, min(N, D)
  /// Returns true when the head became specialising with this reading. NaN changes nothing.
  HEADSCOPE_API bool update(HeadId head, double participation_ratio,
                            double null_participation_ratio, double max_pr);
  HEADSCOPE_API bool specialising(HeadId head) const;
  /// Forgets the heads for which `which` is true.
  HEADSCOPE_API void forget(const std::function<bool(const HeadId&)>& which);
  /// As CircuitTracker's.
  HEADSCOPE_API std::string save() const;
  HEADSCOPE_API void load(const std::string& bytes);

 private:
  struct HeadState {
    double lowest = kNaN;  ///< PR excess
    int64_t held = 0;      ///< readings in a row that speak for a change
    bool specialising = false;
  };
  Rule rule_;
  std::map<HeadId, HeadState> heads_;
};

}  // namespace headscope
