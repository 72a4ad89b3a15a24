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

/// What calls a head emerging: the match margin (default), the attention mass, whichever of the two
/// comes first (the caller then runs each test at half the level), or selectivity without a test.
/// Where a probe lacks the chosen test, the other one counts; where no probe has any (a recorded
/// trajectory), selectivity does.
enum class Precursor { kMargin, kMass, kEither, kSelectivity };

/// "margin", "mass", "either", "selectivity".
HEADSCOPE_API const char* to_string(Precursor precursor);

/// The rules by which states change (docs/math.md section 6). Every event names them.
struct CircuitRules {
  Precursor precursor = Precursor::kMargin;
  double alpha = 0.05;  ///< false `emerging` calls a run: over all patterns, heads and probes
  int64_t planned_probes = 100;  ///< see spent_alpha
  int64_t probes_in_a_row = 2;   ///< probes that must agree before any change, entering or leaving
  double emerging_selectivity = 2;  ///< effect floor: score at the target >= ln of it above its
                                    ///< null mean (nats), mass: selectivity >= it; alone where no
                                    ///< null exists
  double mass_floor = 0.1;          ///< attention mass that `formed` needs
  double leave_fraction = 0.5;      ///< left below this part of threshold or mass floor
  double class_at_256 = 30;         ///< class threshold at T = 256
  bool scale_to_context = true;     ///< thresholds at equal mass, x(T) = x(256) (T - 1) / 255
  int64_t retry_probes = 8;  ///< least probes between two verifications of one circuit; doubles
                             ///< with every further inconclusive verdict in a row
  std::string name = "headscope";  ///< begins the rule of every event

  /// The paper's screens (its previous-token circuit also asks for the best class: see
  /// best_pattern): emerging at 2x, formed at 50x / 100x / 30x whatever T, first probe counts, no
  /// mass floor, no hysteresis, no null test. name: "reference".
  HEADSCOPE_API static CircuitRules reference();
};

/// The two null tests of one pattern at one probe. Where both are absent the probe says nothing on
/// `emerging`.
struct PatternNulls {
  std::optional<NullTestResult> margin;
  std::optional<NullTestResult> mass;
};

/// One probe, as the tracker needs it. `heads` in the order of earlier probes, new ones
/// behind; a head that did not report is given as not finite.
struct ProbeEvidence {
  int64_t step = 0;
  double tokens = kNaN;
  double wall_time = kNaN;
  std::span<const HeadReading> heads;
  std::vector<PatternNulls>
      nulls;  ///< one per pattern; empty: none was drawn (a recorded trajectory)
  bool new_stretch =
      false;  ///< begins a new stretch although the step goes on (a second data phase)
};

/// The states of every pattern's circuit and of every head in it: a deterministic function of the
/// probes and verdicts.
///
/// Head level:    dormant -> emerging -> formed, then lost when left (lost heads may emerge again).
/// Pattern level: dormant -> emerging -> formed -> verified | not_causal | inconclusive, then lost.
/// docs/math.md section 6 has every transition. A NaN reading (or one that is not finite) holds a
/// head where it is: it neither advances nor breaks a streak. Streaks do not reach over the start
/// of a new stretch; states do.
///
/// An event's step is the probe at which the change was certain (the last of the streak); its
/// figures `first_step` and `first_step_after` bracket the first probe of the streak, and it is
/// these first probes that CircuitReading reports as emerging_step and formed_step, so that their
/// difference is a lead measured alike at both ends. Not thread-safe. Copyable state through save()
/// / load().
class CircuitTracker {
 public:
  /// context: T of the probe. Throws std::invalid_argument on context < 2, no patterns, or rules
  /// out of range.
  HEADSCOPE_API CircuitTracker(std::vector<Pattern> patterns, int64_t context,
                               CircuitRules rules = {});
  HEADSCOPE_API ~CircuitTracker();
  HEADSCOPE_API CircuitTracker(CircuitTracker&&) noexcept;
  HEADSCOPE_API CircuitTracker& operator=(CircuitTracker&&) noexcept;

  /// Takes one probe, returns the events it caused (head level first, then pattern level). Figures:
  /// selectivity, mass, margin, participation_ratio, threshold, threshold_at_256, margin_z,
  /// margin_excess, critical_z, p_value, alpha (the margin's test), mass_z, mass_critical_z,
  /// mass_p_value, mass_alpha, probe (its number), stretch, first_step, first_step_after; pattern
  /// level: those of the most selective of its heads. What is not known is left out. A probe at or
  /// before the last step is taken as a new stretch of the run (a second data phase), never as an
  /// error. Throws std::invalid_argument when heads, patterns or nulls do not fit the tracker; its
  /// state is then unchanged.
  HEADSCOPE_API std::vector<Event> update(const ProbeEvidence& probe);

  /// The circuit that should be verified next, if one is due: a formed set without a verdict, one
  /// whose heads have changed since, or an inconclusive one; retry_probes after its last
  /// verification. The one waiting longest comes first. Patterns with BehaviourMetric::kNone are
  /// never due.
  struct Due {
    size_t pattern;
    std::vector<HeadId> heads;
  };
  HEADSCOPE_API std::optional<Due> verification_due() const;

  /// Enters the outcome of an ablation (gate reports only), returns its events. A report on a
  /// circuit that was lost meanwhile, or none of whose heads is formed any more, changes nothing.
  /// Throws std::invalid_argument on an unknown pattern or a verdict that is none.
  HEADSCOPE_API std::vector<Event> apply_verdict(const AblationReport& report, double tokens,
                                                 double wall_time);

  /// One reading per pattern, in order.
  HEADSCOPE_API std::vector<CircuitReading> readings() const;
  HEADSCOPE_API CircuitState head_state(size_t pattern, HeadId head) const;
  /// Selectivity that `formed` needs for a pattern at this context.
  HEADSCOPE_API double formed_threshold(size_t pattern) const;
  HEADSCOPE_API const CircuitRules& rules() const;
  HEADSCOPE_API int64_t probes() const;

  /// Complete state as opaque bytes (versioned); load() throws std::runtime_error when the bytes
  /// are of another version or of other patterns, context or rules, naming the difference.
  HEADSCOPE_API std::string save() const;
  HEADSCOPE_API void load(const std::string& bytes);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Head level `specialising`: the PR excess over the head's own null (same N, random tokens) has
/// risen above its lowest value so far by `rise` of the largest possible PR, and held for `hold`
/// probes; it ends after `hold` probes without that rise. Names no pattern, raises no alert.
class SpecialisationTracker {
 public:
  struct Rule {
    double rise = 0.1;
    int64_t hold = 3;
  };
  SpecialisationTracker() = default;
  /// Throws std::invalid_argument unless rise > 0 and hold >= 1.
  HEADSCOPE_API explicit SpecialisationTracker(Rule rule);
  /// max_pr: min(N, D). Returns true when the head became specialising with this reading. NaN
  /// holds.
  HEADSCOPE_API bool update(HeadId head, double participation_ratio,
                            double null_participation_ratio, double max_pr);
  HEADSCOPE_API bool specialising(HeadId head) const;
  /// Heads for which `which` is true begin anew.
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
