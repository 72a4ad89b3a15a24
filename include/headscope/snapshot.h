#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headscope/export.h"

namespace headscope {

inline constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// A head by its place in the whole model: layer, and query head of that layer, both from 0.
struct HeadId {
  int32_t layer = 0;
  int32_t head = 0;
  auto operator<=>(const HeadId&) const = default;
};

/// Where a reading comes from: the training batch, or the fixed probe batch.
enum class Source { kTrain, kProbe };

/// "train" or "probe".
HEADSCOPE_API const char* to_string(Source source);

/// What one head does on one pattern (docs/math.md section 4). NaN: not measured.
struct PatternReading {
  /// Mean attention per target / mean attention per control, a ratio of means.
  double selectivity = kNaN;
  /// Mean over rows of the attention summed over the row's targets, 0..1.
  double mass = kNaN;
  /// Mean over rows of (score of target - log-mean-exp of lag-matched keys), nats.
  double margin = kNaN;
  /// Mean attention per control position, 0..1.
  double control_mass = kNaN;
  /// Margin in standard deviations of its own null.
  double margin_z = kNaN;
  /// Mass in standard deviations of its own null.
  double mass_z = kNaN;
};

/// What one measured step says of one head. NaN: not measured.
struct HeadReading {
  HeadId id;
  /// exp(entropy of the spectrum), uncentred, 1..min(N, D).
  double participation_ratio = kNaN;
  /// The same of the covariance about the mean.
  double participation_ratio_centred = kNaN;
  /// (sum l)^2 / sum l^2, uncentred.
  double participation_ratio_quadratic = kNaN;
  /// The same of the covariance about the mean.
  double participation_ratio_quadratic_centred = kNaN;
  /// participation_ratio of the same head on random tokens, same N (probe only).
  double null_participation_ratio = kNaN;
  /// Integral of max(participation_ratio - 1, 0) so far (probe only).
  double pr_integral = kNaN;
  /// Root of the mean squared norm of z.
  double output_norm = kNaN;
  /// Mean entropy of the sampled attention rows, nats.
  double entropy = kNaN;
  /// Largest pre-softmax score over the sampled rows.
  double max_logit = kNaN;
  /// Mean attention on position 0.
  double sink_mass = kNaN;
  /// Mean attention on the token after the query's earlier occurrence in a repeated block (probe
  /// only).
  double prefix_matching = kNaN;
  std::vector<double> eigenvalues;       ///< of the uncentred second moment / N, descending
  std::vector<PatternReading> patterns;  ///< in the order of Snapshot::patterns
  std::string best_pattern;              ///< class by best selectivity, or "unclassified"
  int64_t samples = 0;                   ///< N, rows that entered the spectrum
  bool finite = true;                    ///< false: NaN or Inf in z or the scores; figures are NaN
  bool specialising = false;             ///< PR excess over its null rose and held
};

/// How Prometheus shows a figure.
struct Metric {
  std::string_view name;         ///< of the series; empty: not exported
  std::string_view unit = {};    ///< "1" for ratios and counts of nothing in particular
  std::string_view help = {};    ///< one line
  std::string_view absent = {};  ///< when there is no such series; empty: as its neighbours
  std::string_view label = {};   ///< value of the series' own label, where it has one
  int rank = 0;  ///< of a record\'s metrics in /metrics; equal ones: as in the table
};

/// One row of a table of figures: everything that stores, exports or draws a figure reads it here.
template <typename Record>
struct Figure {
  size_t slot;            ///< place in stored records: the next one for a new figure, never reused
  std::string_view name;  ///< in JSON
  double Record::*member;
  Metric metric;
  size_t page_place = 0;    ///< its place among the figures of the live page and its API; 0: none
  bool probe_only = false;  ///< never measured on a training batch
};

/// The figures of a head, in the order of /metrics.
inline constexpr Figure<HeadReading> kHeadFigures[] = {
    {.slot = 0,
     .name = "participation_ratio",
     .member = &HeadReading::participation_ratio,
     .metric = {"headscope_head_participation_ratio", "1",
                "Effective rank of the head's output, exp of the spectrum's entropy."},
     .page_place = 1},
    {.slot = 1,
     .name = "participation_ratio_centred",
     .member = &HeadReading::participation_ratio_centred,
     .metric = {"headscope_head_participation_ratio_centred", "1",
                "Effective rank about the mean output."}},
    {.slot = 2,
     .name = "participation_ratio_quadratic",
     .member = &HeadReading::participation_ratio_quadratic,
     .metric =
         {"headscope_head_participation_ratio_quadratic", "1",
          "Participation ratio of physics, squared sum over sum of squares of the spectrum."}},
    {.slot = 3,
     .name = "participation_ratio_quadratic_centred",
     .member = &HeadReading::participation_ratio_quadratic_centred,
     .metric = {"headscope_head_participation_ratio_quadratic_centred", "1",
                "Participation ratio of physics about the mean output."}},
    {.slot = 4,
     .name = "null_participation_ratio",
     .member = &HeadReading::null_participation_ratio,
     .metric = {"headscope_head_null_participation_ratio", "1",
                "Effective rank of the same head on random tokens, same number of samples."},
     .page_place = 2,
     .probe_only = true},
    {.slot = 5,
     .name = "pr_integral",
     .member = &HeadReading::pr_integral,
     .metric = {"headscope_head_pr_integral", "axis units",
                "Integral of max(participation ratio - 1, 0) so far; the axis is in "
                "headscope_measurement_info."},
     .page_place = 3,
     .probe_only = true},
    {.slot = 6,
     .name = "output_norm",
     .member = &HeadReading::output_norm,
     .metric = {"headscope_head_output_norm", "1", "Root mean squared norm of the head's output."},
     .page_place = 7},
    {.slot = 7,
     .name = "entropy",
     .member = &HeadReading::entropy,
     .metric = {"headscope_head_attention_entropy_nats", "nats",
                "Mean entropy of the sampled attention rows."},
     .page_place = 4},
    {.slot = 8,
     .name = "max_logit",
     .member = &HeadReading::max_logit,
     .metric = {"headscope_head_max_logit", "1",
                "Largest attention score before softmax over the sampled rows."},
     .page_place = 5},
    {.slot = 10,
     .name = "prefix_matching",
     .member = &HeadReading::prefix_matching,
     .metric = {"headscope_head_prefix_matching_ratio", "1",
                "Mean attention, in the second copy of a repeated block, on the token after the "
                "query's earlier occurrence."},
     .page_place = 8,
     .probe_only = true},
    {.slot = 9,
     .name = "sink_mass",
     .member = &HeadReading::sink_mass,
     .metric = {"headscope_head_sink_mass_ratio", "1", "Mean attention on position 0."},
     .page_place = 6},
};

/// The figures of a head on one pattern, likewise.
inline constexpr Figure<PatternReading> kPatternFigures[] = {
    {.slot = 0,
     .name = "selectivity",
     .member = &PatternReading::selectivity,
     .metric = {"headscope_head_selectivity_ratio", "1",
                "Mean attention per target over mean attention per control position."},
     .page_place = 1},
    {.slot = 1,
     .name = "mass",
     .member = &PatternReading::mass,
     .metric = {"headscope_head_attention_mass_ratio", "1",
                "Mean attention summed over the targets of a row."},
     .page_place = 2},
    {.slot = 2,
     .name = "margin",
     .member = &PatternReading::margin,
     .metric = {"headscope_head_match_margin_nats", "nats",
                "Mean score of the target over the log-mean-exp of lag-matched keys."},
     .page_place = 3},
    {.slot = 3, .name = "control_mass", .member = &PatternReading::control_mass, .metric = {}},
    {.slot = 4,
     .name = "margin_z",
     .member = &PatternReading::margin_z,
     .metric = {"headscope_head_match_margin_z", "standard deviations",
                "The match margin in standard deviations of its own null."},
     .page_place = 4},
    {.slot = 5, .name = "mass_z", .member = &PatternReading::mass_z, .metric = {}},
};

/// A table in the order of its slots. Does not compile when a slot is missing or taken twice.
template <typename Record, size_t n>
constexpr std::array<Figure<Record>, n> by_slot(const Figure<Record> (&figures)[n]) {
  std::array<Figure<Record>, n> ordered{};
  for (const Figure<Record>& figure : figures) {
    if (ordered.at(figure.slot).member != nullptr) throw "a slot is taken twice";
    ordered.at(figure.slot) = figure;
  }
  return ordered;
}

/// The life of a pattern's circuit and of one head in it (docs/math.md section 6).
enum class CircuitState {
  kDormant,
  kEmerging,
  kFormed,
  kVerified,
  kNotCausal,
  kUnspecific,
  kInconclusive,
  kLost
};
inline constexpr int kCircuitStates = 8;

/// "dormant", "emerging", "formed", "verified", "not_causal", "unspecific", "inconclusive", "lost".
HEADSCOPE_API const char* to_string(CircuitState state);
/// The reverse; throws std::invalid_argument that names the value.
HEADSCOPE_API CircuitState circuit_state_from_string(const std::string& name);

/// Something that happened to a circuit (pattern level: `heads` are its heads) or to one head
/// (`head_level`: exactly one entry in `heads`).
struct Event {
  int64_t step = 0;
  double tokens = kNaN;
  double wall_time = kNaN;           ///< seconds since the Unix epoch
  int64_t previous_probe_step = -1;  ///< change in (previous_probe_step, step]; -1: first probe
  std::string kind;                  ///< a state's name, "specialising", "converted"
  std::string pattern;               ///< empty for "specialising"
  bool head_level = false;
  std::vector<HeadId> heads;
  std::map<std::string, double> figures;  ///< e.g. selectivity, mass, threshold, p_value, effect
  std::string rule;                       ///< the rule that was applied, in words
};

/// Outcome of one ablation (docs/math.md section 7). Losses and effects in nats, means over
/// examples.
struct AblationReport {
  std::string pattern;
  std::string metric;  ///< "planted_loss" or "repeated_loss"
  bool gate = false;   ///< true: this metric decides the circuit's state; false: reported beside it
  int64_t step = 0;
  std::vector<HeadId> heads;
  double baseline_loss = kNaN;
  double ablated_loss = kNaN;
  double effect = kNaN;      ///< ablated - baseline
  double effect_low = kNaN;  ///< bootstrap interval of the effect
  double effect_high = kNaN;
  std::vector<double> control_effects;            ///< one for each disjoint control set
  std::vector<std::vector<HeadId>> control_sets;  ///< the heads of each
  std::vector<double> single_head_effects;  ///< of each head alone; with fewer than 8 controls
  double control_mean = kNaN;               ///< mean of control_effects
  double difference_low = kNaN;             ///< bootstrap interval of effect - control mean
  double difference_high = kNaN;
  /// Of random label sets, on their examples: sets of the same size in each layer, overlap allowed.
  std::vector<double> label_effects;
  double labelled_effect = kNaN;  ///< the circuit's effect on these examples
  double p_value = kNaN;  ///< (1 + label sets at least as strong) / (1 + label sets); NaN: not run
  double level = kNaN;    ///< what p_value is held against, and the attempt costs; NaN: no test
  double upper_bound_effect = kNaN;  ///< all heads of the layers ablated; decides nothing
  double attainable_p = kNaN;        ///< 1 / sets of this size that exist, the circuit's included
  int64_t examples = 0;              ///< distinct ones
  /// verified, not causal, unspecific or inconclusive
  CircuitState verdict = CircuitState::kInconclusive;
  std::string reason;  ///< the verdict in words, with the number of controls it rests on
};

/// What heads reach without the structure, as a screen found it (docs/math.md section 9): it is
/// kept with the run, so that later readers know what counts as above noise.
struct NullCalibration {
  int64_t step = 0;
  std::string batch = {};    ///< which rows (ScreenBatch), e.g. "planted"
  std::string pattern = {};  ///< empty: of the participation ratio
  std::string null = {};     ///< "permuted" or "uniform" targets; "random_tokens" of the ratio
  int64_t context = 0;       ///< T that the screen's thresholds scaled with
  int64_t rows = 0;          ///< that count; of the ratio its N
  int64_t draws = 0;         ///< of the targets; of the ratio 1
  double max = kNaN;         ///< over heads and draws
  double p99 = kNaN;
  double p95 = kNaN;
  double median = kNaN;
  double recall_threshold = kNaN;  ///< max(2, p99); NaN for the ratio
  int64_t heads_above = 0;  ///< heads at or above recall_threshold; of the ratio above the maximum
};

/// One pattern's circuit at one snapshot. Steps are -1 and tokens NaN until it happens.
struct CircuitReading {
  std::string pattern;
  CircuitState state = CircuitState::kDormant;
  std::vector<HeadId> heads;         ///< emerging heads while emerging, formed heads after
  std::vector<HeadId> judged_heads;  ///< those that the standing verdict is about
  double formed_threshold = kNaN;    ///< selectivity x(T) that `formed` needs at this context
  double recall_threshold = kNaN;    ///< selectivity above noise, by the last screen of the probe
  double critical_margin_z = kNaN;   ///< family-wise critical value, last that was resolved
  double best_selectivity = kNaN;    ///< of all heads, last probe
  int64_t emerging_step = -1;        ///< first of the probes in a row that made it emerging
  int64_t margin_step = -1;          ///< first of the probes in a row whose margin beats its null
  int64_t mass_step = -1;            ///< the same for the attention mass
  int64_t formed_step = -1;          ///< first of the probes in a row that made it formed
  int64_t verified_step = -1;
  double emerging_tokens = kNaN;
  double formed_tokens = kNaN;
  double verified_tokens = kNaN;
};

/// Counts of what the monitor did and of what went wrong, as of a snapshot. Never reset.
struct Health {
  std::map<std::string, uint64_t> errors;  ///< by kind; kinds are listed in docs/metrics.md
  uint64_t taps = 0;                       ///< attention calls measured
  uint64_t taps_missing = 0;        ///< expected layers that did not report at a measured step
  uint64_t taps_skipped = 0;        ///< seen but not measured (recompute, paused)
  uint64_t snapshots_dropped = 0;   ///< by the hand-over to the sinks
  uint64_t nonfinite_readings = 0;  ///< readings of a head with NaN or Inf
  uint64_t probes = 0;
  uint64_t measured_steps = 0;
  uint64_t deferred = 0;         ///< steps at which something due was put off by the budget
  double budget_ratio = 0;       ///< share of wall time that measuring may take; 0: no bound
  double budget_used_ratio = 0;  ///< of what ten minutes allow, as of the last measured step
  double tap_seconds = 0;        ///< training thread, inside observe()
  double probe_seconds = 0;      ///< training thread, probe forwards
  double ablation_seconds = 0;   ///< training thread, ablation forwards
  double wait_seconds = 0;       ///< training thread, waiting for an earlier measured step
  double analysis_seconds = 0;   ///< analysis thread
};

/// Everything known at one measured step. Immutable once published.
struct Snapshot {
  int64_t step = 0;            ///< optimizer steps done before this measurement
  double tokens = kNaN;        ///< tokens seen before this measurement
  double wall_time = kNaN;     ///< seconds since the Unix epoch
  double loss = kNaN;          ///< as told by StepScope::loss, NaN if never
  int64_t segment = 0;         ///< counts resumptions; replayed steps supersede earlier segments
  int64_t segment_start = -1;  ///< step at which the segment resumed; -1: the run's own start
  Source source = Source::kTrain;
  int64_t context = 0;         ///< T of the batch
  int64_t probe_interval = 0;  ///< steps since the previous probe (0: first)
  std::string dtype;           ///< of z, e.g. "Float"
  std::string integral_axis;   ///< definition of pr_integral, e.g. "ln_tokens"
  std::string controls;        ///< definition of the selectivity's denominator
  std::vector<std::string> patterns;
  std::vector<HeadReading> heads;             ///< sorted by id
  std::vector<CircuitReading> circuits;       ///< in the order of `patterns`
  std::vector<Event> events;                  ///< new since the previous snapshot
  std::vector<AblationReport> ablations;      ///< new since the previous snapshot
  std::vector<NullCalibration> calibrations;  ///< new since the previous snapshot
  double sink_any = kNaN;    ///< share of heads whose first-token selectivity is at the threshold
  double sink_class = kNaN;  ///< share of heads whose class is first-token
  double repeat_gap = kNaN;  ///< repeated block: loss of copy 1 - loss of copy 2, nats (probe only)
  Health health;
};

}  // namespace headscope
