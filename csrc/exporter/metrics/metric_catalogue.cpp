#include "csrc/exporter/metrics/metric_catalogue.h"

#include <iterator>
#include <stdexcept>
#include <string>
#include <unordered_map>

namespace headscope::exporter {
namespace {

constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kCounter = MetricKind::kCounter;

constexpr std::string_view kHead = "layer,head,source";
constexpr std::string_view kHeadPattern = "layer,head,source,pattern";
constexpr std::string_view kAblation = "pattern,metric";
constexpr std::string_view kNever = "never";
constexpr std::string_view kNoSnapshot = "before the first snapshot";
constexpr std::string_view kNotMeasured = "not measured in this source's last snapshot";
constexpr std::string_view kProbeOnly = "source `train`; not measured";
constexpr std::string_view kNoCircuits = "before the first probe";
constexpr std::string_view kNotReached = "never reached";
constexpr std::string_view kNoAblation = "before the first ablation of the pattern; not run";

constexpr MetricSpec kCatalogue[] = {
    // The run.
    {"headscope_build_info", kGauge, "version", "1", "Always 1; the version of headscope.",
     "`HEADSCOPE_VERSION`", kNever},
    {"headscope_run_info", kGauge, "*", "1", "Always 1; the facts of the run as labels.",
     "`RunFacts`", kNever},
    {"headscope_step", kGauge, "", "steps", "Optimizer steps done before the newest measurement.",
     "`Snapshot::step`", kNoSnapshot},
    {"headscope_tokens", kGauge, "", "tokens",
     "Training tokens seen before the newest measurement.", "`Snapshot::tokens`",
     "tokens were never told"},
    {"headscope_loss", kGauge, "", "nats",
     "Training loss as the training program told it last; NaN when the told loss is.",
     "`Snapshot::loss`", "a loss was never told"},
    {"headscope_segment", kGauge, "", "1", "How often the run was resumed.", "`Snapshot::segment`",
     kNoSnapshot},
    {"headscope_last_snapshot_timestamp_seconds", kGauge, "", "seconds",
     "Unix time of the newest measurement.", "`Snapshot::wall_time`", kNoSnapshot},
    {"headscope_probe_interval_steps", kGauge, "", "steps",
     "Steps between the last two probes: no event is dated more finely.",
     "`Snapshot::probe_interval`", kNoCircuits},
    {"headscope_measurement_info", kGauge, "source,dtype,integral_axis,controls", "1",
     "Always 1; the definitions behind the figures of a source.",
     "`Snapshot::dtype`, `integral_axis`, `controls`", kNoSnapshot},
    {"headscope_source_step", kGauge, "source", "steps", "Step of the source's readings.",
     "`Snapshot::step`", kNoSnapshot},
    {"headscope_context_tokens", kGauge, "source", "tokens",
     "Context length of the measured batch.", "`Snapshot::context`", kNoSnapshot},
    {"headscope_spectrum_samples", kGauge, "source", "rows",
     "Rows behind each spectrum (smallest over the heads); participation ratios of different "
     "sample counts do not compare.",
     "`HeadReading::samples`", "no head was measured"},
    {"headscope_repeat_gap_nats", kGauge, "source", "nats",
     "Loss of the first copy of a repeated block minus the loss of its second copy.",
     "`Snapshot::repeat_gap`", kNotMeasured},
    {"headscope_sink_any_ratio", kGauge, "source", "1",
     "Share of heads whose first-token selectivity is at least 30.", "`Snapshot::sink_any`",
     kNotMeasured},
    {"headscope_sink_class_ratio", kGauge, "source", "1",
     "Share of heads whose best class is first-token.", "`Snapshot::sink_class`", kNotMeasured},

    // Heads.
    {"headscope_head_participation_ratio", kGauge, kHead, "1",
     "Effective rank of the head's output, exp of the spectrum's entropy.",
     "`HeadReading::participation_ratio`", kNotMeasured},
    {"headscope_head_participation_ratio_centred", kGauge, kHead, "1",
     "Effective rank about the mean output.", "`HeadReading::participation_ratio_centred`",
     kNotMeasured},
    {"headscope_head_participation_ratio_quadratic", kGauge, kHead, "1",
     "Participation ratio of physics, squared sum over sum of squares of the spectrum.",
     "`HeadReading::participation_ratio_quadratic`", kNotMeasured},
    {"headscope_head_participation_ratio_quadratic_centred", kGauge, kHead, "1",
     "Participation ratio of physics about the mean output.",
     "`HeadReading::participation_ratio_quadratic_centred`", kNotMeasured},
    {"headscope_head_null_participation_ratio", kGauge, kHead, "1",
     "Effective rank of the same head on random tokens, same number of samples.",
     "`HeadReading::null_participation_ratio`", kProbeOnly},
    {"headscope_head_pr_integral", kGauge, kHead, "axis units",
     "Integral of max(participation ratio - 1, 0) so far; the axis is in "
     "headscope_measurement_info.",
     "`HeadReading::pr_integral`", kProbeOnly},
    {"headscope_head_output_norm", kGauge, kHead, "1",
     "Root mean squared norm of the head's output.", "`HeadReading::output_norm`", kNotMeasured},
    {"headscope_head_attention_entropy_nats", kGauge, kHead, "nats",
     "Mean entropy of the sampled attention rows.", "`HeadReading::entropy`", kNotMeasured},
    {"headscope_head_max_logit", kGauge, kHead, "1",
     "Largest attention score before softmax over the sampled rows.", "`HeadReading::max_logit`",
     kNotMeasured},
    {"headscope_head_prefix_matching_ratio", kGauge, kHead, "1",
     "Mean attention, in the second copy of a repeated block, on the token after the query's "
     "earlier "
     "occurrence.",
     "`HeadReading::prefix_matching`", kNotMeasured},
    {"headscope_head_sink_mass_ratio", kGauge, kHead, "1", "Mean attention on position 0.",
     "`HeadReading::sink_mass`", kNotMeasured},
    {"headscope_head_finite", kGauge, kHead, "1",
     "1 when the head's output and scores are finite, else 0; its figures are NaN then.",
     "`HeadReading::finite`", kNoSnapshot},
    {"headscope_head_specialising", kGauge, kHead, "1",
     "1 when the head's participation ratio rose above its null and held; names no pattern.",
     "`HeadReading::specialising`", "source `train`"},
    {"headscope_head_selectivity_ratio", kGauge, kHeadPattern, "1",
     "Mean attention per target over mean attention per control position.",
     "`PatternReading::selectivity`", kNotMeasured},
    {"headscope_head_attention_mass_ratio", kGauge, kHeadPattern, "1",
     "Mean attention summed over the targets of a row.", "`PatternReading::mass`", kNotMeasured},
    {"headscope_head_match_margin_nats", kGauge, kHeadPattern, "nats",
     "Mean score of the target over the log-mean-exp of lag-matched keys.",
     "`PatternReading::margin`", kNotMeasured},
    {"headscope_head_match_margin_z", kGauge, kHeadPattern, "standard deviations",
     "The match margin in standard deviations of its own null.", "`PatternReading::margin_z`",
     kNotMeasured},
    {"headscope_series_cap", kGauge, "", "series", "Head series that one scrape shows at most.",
     "the exporter", kNoSnapshot},
    {"headscope_series_left_out", kGauge, "", "series",
     "Head series beyond the cap of a scrape; the heads of the lowest selectivity go first.",
     "the exporter", kNoSnapshot},
    {"headscope_heads_left_out", kGauge, "", "heads",
     "Heads beyond the cap of a scrape; headscope_heads_* have them all the same.", "the exporter",
     kNoSnapshot},

    // Over all heads, those beyond the cap too.
    {"headscope_heads", kGauge, "source", "heads", "Heads measured.", "`Snapshot::heads`",
     kNoSnapshot},
    {"headscope_heads_nonfinite", kGauge, "source", "heads",
     "Heads with NaN or infinity in output or scores; they enter none of the figures below.",
     "`HeadReading::finite`", kNoSnapshot},
    {"headscope_heads_collapsed", kGauge, "source", "heads",
     "Heads whose participation ratio is below 1.1.", "`HeadReading::participation_ratio`",
     kNotMeasured},
    {"headscope_heads_lowest_participation_ratio", kGauge, "source", "1",
     "Lowest participation ratio of all heads.", "`HeadReading::participation_ratio`",
     kNotMeasured},
    {"headscope_heads_median_participation_ratio", kGauge, "source", "1",
     "Median participation ratio of the heads.", "`HeadReading::participation_ratio`",
     kNotMeasured},
    {"headscope_heads_lowest_attention_entropy_nats", kGauge, "source", "nats",
     "Lowest mean entropy of all heads.", "`HeadReading::entropy`", kNotMeasured},
    {"headscope_heads_median_attention_entropy_nats", kGauge, "source", "nats",
     "Median over the heads of their mean entropy.", "`HeadReading::entropy`", kNotMeasured},
    {"headscope_heads_highest_max_logit", kGauge, "source", "1",
     "Largest attention score before softmax of all heads.", "`HeadReading::max_logit`",
     kNotMeasured},
    {"headscope_heads_mean_sink_mass_ratio", kGauge, "source", "1",
     "Mean over the heads of their attention on position 0.", "`HeadReading::sink_mass`",
     kNotMeasured},
    {"headscope_heads_highest_selectivity_ratio", kGauge, "source,pattern", "1",
     "Highest selectivity of all heads.", "`PatternReading::selectivity`", kNotMeasured},
    {"headscope_heads_highest_attention_mass_ratio", kGauge, "source,pattern", "1",
     "Highest attention mass of all heads.", "`PatternReading::mass`", kNotMeasured},

    // Circuits.
    {"headscope_circuit_state", kGauge, "pattern,state", "1",
     "1 for the state that the pattern's circuit is in, 0 for the others.",
     "`CircuitReading::state`", kNoCircuits},
    {"headscope_circuit_heads", kGauge, "pattern", "heads", "Heads in the pattern's circuit.",
     "`CircuitReading::heads`", kNoCircuits},
    {"headscope_circuit_member", kGauge, "pattern,layer,head", "1",
     "Always 1; the heads of the pattern's circuit.", "`CircuitReading::heads`",
     "the head is not in the circuit"},
    {"headscope_circuit_formed_threshold_ratio", kGauge, "pattern", "1",
     "Selectivity that formed needs at this context length.", "`CircuitReading::formed_threshold`",
     kNoCircuits},
    {"headscope_circuit_deadline_tokens", kGauge, "pattern", "tokens",
     "Tokens by which the user wants the pattern's circuit to have formed.",
     "`Options::deadline_tokens`", "no deadline was given"},
    {"headscope_circuit_critical_margin_z", kGauge, "pattern", "standard deviations",
     "Family-wise critical value of the match margin at the last probe.",
     "`CircuitReading::critical_margin_z`", "no null was drawn"},
    {"headscope_circuit_best_selectivity_ratio", kGauge, "pattern", "1",
     "Best selectivity of all heads at the last probe.", "`CircuitReading::best_selectivity`",
     "not measured"},
    {"headscope_circuit_emerging_step", kGauge, "pattern", "steps",
     "First step of the probes that made the circuit emerging.", "`CircuitReading::emerging_step`",
     kNotReached},
    {"headscope_circuit_margin_step", kGauge, "pattern", "steps",
     "Step from which on the match margin beat its null.", "`CircuitReading::margin_step`",
     kNotReached},
    {"headscope_circuit_mass_step", kGauge, "pattern", "steps",
     "Step from which on the attention mass beat its null.", "`CircuitReading::mass_step`",
     kNotReached},
    {"headscope_circuit_formed_step", kGauge, "pattern", "steps",
     "Step at which the circuit formed.", "`CircuitReading::formed_step`", kNotReached},
    {"headscope_circuit_verified_step", kGauge, "pattern", "steps",
     "Step at which ablation verified the circuit.", "`CircuitReading::verified_step`",
     kNotReached},
    {"headscope_circuit_emerging_tokens", kGauge, "pattern", "tokens",
     "Tokens seen when the circuit began to emerge.", "`CircuitReading::emerging_tokens`",
     kNotReached},
    {"headscope_circuit_formed_tokens", kGauge, "pattern", "tokens",
     "Tokens seen when the circuit formed.", "`CircuitReading::formed_tokens`", kNotReached},
    {"headscope_circuit_verified_tokens", kGauge, "pattern", "tokens",
     "Tokens seen when ablation verified the circuit.", "`CircuitReading::verified_tokens`",
     kNotReached},
    {"headscope_events_total", kCounter, "kind,pattern,level", "events",
     "Changes of state since this process attached, of whole circuits and of single heads.",
     "`Snapshot::events`", "before the first snapshot; kinds never seen on the head level"},

    // Ablations: the latest report of a pattern and metric.
    {"headscope_ablation_verdict", kGauge, "pattern,metric,verdict", "1",
     "1 for the verdict of the latest ablation, 0 for the others.", "`AblationReport::verdict`",
     kNoAblation},
    {"headscope_ablation_gate", kGauge, kAblation, "1",
     "1 when the circuit's state rests on this metric, 0 when it is reported beside it.",
     "`AblationReport::gate`", kNoAblation},
    {"headscope_ablation_step", kGauge, kAblation, "steps", "Step of the latest ablation.",
     "`AblationReport::step`", kNoAblation},
    {"headscope_ablation_heads", kGauge, kAblation, "heads", "Heads that were ablated.",
     "`AblationReport::heads`", kNoAblation},
    {"headscope_ablation_examples", kGauge, kAblation, "examples", "Examples the losses rest on.",
     "`AblationReport::examples`", kNoAblation},
    {"headscope_ablation_controls", kGauge, kAblation, "sets", "Control sets that were ablated.",
     "`AblationReport::control_effects`", kNoAblation},
    {"headscope_ablation_baseline_loss_nats", kGauge, kAblation, "nats", "Loss without ablation.",
     "`AblationReport::baseline_loss`", kNoAblation},
    {"headscope_ablation_ablated_loss_nats", kGauge, kAblation, "nats",
     "Loss with the circuit's heads ablated.", "`AblationReport::ablated_loss`", kNoAblation},
    {"headscope_ablation_effect_nats", kGauge, kAblation, "nats",
     "Rise of the loss by ablating the circuit.", "`AblationReport::effect`", kNoAblation},
    {"headscope_ablation_control_mean_nats", kGauge, kAblation, "nats",
     "Mean rise of the loss by ablating control sets.", "`AblationReport::control_mean`",
     kNoAblation},
    {"headscope_ablation_difference_low_nats", kGauge, kAblation, "nats",
     "Lower end of the bootstrap interval of effect minus control mean.",
     "`AblationReport::difference_low`", kNoAblation},
    {"headscope_ablation_difference_high_nats", kGauge, kAblation, "nats",
     "Upper end of the bootstrap interval of effect minus control mean.",
     "`AblationReport::difference_high`", kNoAblation},
    {"headscope_ablation_upper_bound_effect_nats", kGauge, kAblation, "nats",
     "Rise of the loss by ablating all heads of the circuit's layers.",
     "`AblationReport::upper_bound_effect`", kNoAblation},
    {"headscope_ablation_attainable_p_ratio", kGauge, kAblation, "1",
     "Smallest p value that this number of control sets can give.",
     "`AblationReport::attainable_p`", kNoAblation},

    // headscope's own cost and errors.
    {"headscope_errors_total", kCounter, "kind", "errors",
     "Failures inside headscope, by kind; none of them reached the training program.",
     "`Health::errors`", kNever},
    {"headscope_taps_total", kCounter, "", "calls", "Attention calls measured.", "`Health::taps`",
     kNever},
    {"headscope_taps_missing_total", kCounter, "", "calls",
     "Expected layers that did not report at a measured step.", "`Health::taps_missing`", kNever},
    {"headscope_taps_skipped_total", kCounter, "", "calls",
     "Attention calls seen but not measured (recomputed in backward, paused).",
     "`Health::taps_skipped`", kNever},
    {"headscope_snapshots_dropped_total", kCounter, "", "snapshots",
     "Snapshots that a slow sink lost.", "`Health::snapshots_dropped`", kNever},
    {"headscope_nonfinite_readings_total", kCounter, "", "readings",
     "Head readings with NaN or infinity in them.", "`Health::nonfinite_readings`", kNever},
    {"headscope_probes_total", kCounter, "", "probes", "Probes run.", "`Health::probes`", kNever},
    {"headscope_measured_steps_total", kCounter, "", "steps", "Training steps measured.",
     "`Health::measured_steps`", kNever},
    {"headscope_deferred_total", kCounter, "", "steps",
     "Steps at which something due was put off by the overhead budget.", "`Health::deferred`",
     kNever},
    {"headscope_budget_ratio", kGauge, "", "ratio",
     "Share of wall time that measuring may take; 0: no bound.", "`Health::budget_ratio`", kNever},
    {"headscope_budget_used_ratio", kGauge, "", "ratio",
     "What was spent in the last ten minutes over what the budget allows in them.",
     "`Health::budget_used_ratio`", kNever},
    {"headscope_monitor_seconds_total", kCounter, "phase", "seconds",
     "Time spent by headscope; all phases but analysis are on the training thread.",
     "`Health::tap_seconds`, `probe_seconds`, `ablation_seconds`, `wait_seconds`, "
     "`analysis_seconds`",
     kNever},
};

constexpr ErrorKind kErrorKinds[] = {
    {"tap", "an attention call could not be measured; that measurement pauses"},
    {"probe", "a probe pass failed, in the user's forward or in headscope"},
    {"ablation", "an ablation pass failed; the circuit's verdict stays open"},
    {"self_check",
     "rows of z recomputed from q, k and v disagreed with the given z: a mask, bias or scale that "
     "the tap was not told of"},
    {"analysis", "spectra, screen or states of a measured step failed"},
    {"sink", "a sink other than those below failed to take a snapshot"},
    {"history", "the run history could not be written; it is tried again with the next snapshot"},
    {"server", "the metrics server failed"},
    {"callback", "the user's event callback threw"},
    {"state", "saving or loading the monitor's state failed"},
};

}  // namespace

std::span<const MetricSpec> metric_catalogue() { return kCatalogue; }

std::span<const ErrorKind> known_error_kinds() { return kErrorKinds; }

size_t metric_index(std::string_view name) {
  static const auto* const kIndex = [] {
    auto* index = new std::unordered_map<std::string_view, size_t>;
    for (size_t i = 0; i < std::size(kCatalogue); ++i) index->emplace(kCatalogue[i].name, i);
    return index;
  }();
  const auto found = kIndex->find(name);
  if (found == kIndex->end()) {
    throw std::invalid_argument("metric '" + std::string(name) +
                                "' is not in the catalogue; add it to metric_catalogue.cpp");
  }
  return found->second;
}

std::string catalogue_markdown() {
  std::string text =
      "| metric | type | labels | unit | meaning | from | absent |\n"
      "| --- | --- | --- | --- | --- | --- | --- |\n";
  for (const MetricSpec& spec : kCatalogue) {
    const std::string labels = spec.labels == "*" ? "the facts' names" : std::string(spec.labels);
    text += "| `" + std::string(spec.name) + "` | " +
            (spec.kind == MetricKind::kCounter ? "counter" : "gauge") + " | " + labels + " | " +
            std::string(spec.unit) + " | " + std::string(spec.help) + " | " +
            std::string(spec.origin) + " | " + std::string(spec.absent) + " |\n";
  }
  return text;
}

std::string error_kinds_markdown() {
  std::string text = "| kind | what failed |\n| --- | --- |\n";
  for (const ErrorKind& kind : kErrorKinds) {
    text += "| `" + std::string(kind.name) + "` | " + std::string(kind.meaning) + " |\n";
  }
  return text;
}

}  // namespace headscope::exporter
