#pragma once

#include <string_view>
#include <tuple>

#include "headscope/snapshot.h"

/// The fields of each record of a snapshot, as tables. Whatever goes over all of them does so by
/// these: JSON, the resumable state, the metric catalogue, comparisons, a sink of your own.
/// The figures of a head stand beside HeadReading (kHeadFigures, kPatternFigures).

namespace headscope {

/// One field of a record.
template <typename Record, typename Value>
struct Field {
  constexpr Field(std::string_view field_name, Value Record::*pointer, Metric exported = {})
      : name(field_name), member(pointer), metric(exported) {}

  std::string_view name;  ///< in JSON and in the state
  Value Record::*member;
  Metric metric;  ///< of a list: its length; of a step: absent below 0
};

/// What a record is called, and its fields in the order of JSON. /metrics has them in the order of
/// their metrics' ranks.
template <typename Record>
struct Fields;

template <>
struct Fields<Event> {
  static constexpr std::string_view kName = "Event";
  static constexpr auto kTable =
      std::tuple(Field("step", &Event::step), Field("tokens", &Event::tokens),
                 Field("wall_time", &Event::wall_time),
                 Field("previous_probe_step", &Event::previous_probe_step),
                 Field("kind", &Event::kind), Field("pattern", &Event::pattern),
                 Field("head_level", &Event::head_level), Field("heads", &Event::heads),
                 Field("figures", &Event::figures), Field("rule", &Event::rule));
};

template <>
struct Fields<CircuitReading> {
  using R = CircuitReading;
  static constexpr std::string_view kName = "CircuitReading";
  static constexpr std::string_view kNotReached = "never reached";
  static constexpr auto kTable = std::tuple(
      Field("pattern", &R::pattern), Field("state", &R::state), Field("heads", &R::heads),
      Field("judged_heads", &R::judged_heads),
      Field("formed_threshold", &R::formed_threshold,
            {"headscope_circuit_formed_threshold_ratio", "1",
             "Selectivity that formed needs at this context length."}),
      Field("recall_threshold", &R::recall_threshold),
      Field("critical_margin_z", &R::critical_margin_z,
            {"headscope_circuit_critical_margin_z", "standard deviations",
             "Family-wise critical value of the match margin, the last that was resolved.",
             "no null was drawn"}),
      Field("best_selectivity", &R::best_selectivity,
            {"headscope_circuit_best_selectivity_ratio", "1",
             "Best selectivity of all heads at the last probe.", "not measured"}),
      Field("emerging_step", &R::emerging_step,
            {"headscope_circuit_emerging_step", "steps",
             "First step of the probes that made the circuit emerging.", kNotReached}),
      Field("margin_step", &R::margin_step,
            {"headscope_circuit_margin_step", "steps",
             "Step from which on the match margin beat its null.", kNotReached}),
      Field("mass_step", &R::mass_step,
            {"headscope_circuit_mass_step", "steps",
             "Step from which on the attention mass beat its null.", kNotReached}),
      Field("formed_step", &R::formed_step,
            {"headscope_circuit_formed_step", "steps", "Step at which the circuit formed.",
             kNotReached}),
      Field("verified_step", &R::verified_step,
            {"headscope_circuit_verified_step", "steps",
             "Step at which ablation verified the circuit.", kNotReached}),
      Field("emerging_tokens", &R::emerging_tokens,
            {"headscope_circuit_emerging_tokens", "tokens",
             "Tokens seen when the circuit began to emerge.", kNotReached}),
      Field("formed_tokens", &R::formed_tokens,
            {"headscope_circuit_formed_tokens", "tokens", "Tokens seen when the circuit formed.",
             kNotReached}),
      Field("verified_tokens", &R::verified_tokens,
            {"headscope_circuit_verified_tokens", "tokens",
             "Tokens seen when ablation verified the circuit.", kNotReached}));
};

template <>
struct Fields<NullCalibration> {
  using R = NullCalibration;
  static constexpr std::string_view kName = "NullCalibration";
  static constexpr auto kTable = std::tuple(
      Field("step", &R::step), Field("batch", &R::batch), Field("pattern", &R::pattern),
      Field("null", &R::null), Field("context", &R::context), Field("rows", &R::rows),
      Field("draws", &R::draws), Field("max", &R::max), Field("p99", &R::p99),
      Field("p95", &R::p95), Field("median", &R::median),
      Field("recall_threshold", &R::recall_threshold), Field("heads_above", &R::heads_above));
};

template <>
struct Fields<AblationReport> {
  using R = AblationReport;
  static constexpr std::string_view kName = "AblationReport";
  static constexpr auto kTable = std::tuple(
      Field("pattern", &R::pattern), Field("metric", &R::metric),
      Field("gate", &R::gate,
            {"headscope_ablation_gate",
             "1",
             "1 when the circuit's state rests on this metric, 0 when it is reported beside it.",
             {},
             {},
             -2}),
      Field("step", &R::step,
            {"headscope_ablation_step", "steps", "Step of the latest ablation.", {}, {}, -2}),
      Field("heads", &R::heads,
            {"headscope_ablation_heads", "heads", "Heads that were ablated.", {}, {}, -2}),
      Field("baseline_loss", &R::baseline_loss,
            {"headscope_ablation_baseline_loss_nats", "nats", "Loss without ablation."}),
      Field("ablated_loss", &R::ablated_loss,
            {"headscope_ablation_ablated_loss_nats", "nats",
             "Loss with the circuit's heads ablated."}),
      Field(
          "effect", &R::effect,
          {"headscope_ablation_effect_nats", "nats", "Rise of the loss by ablating the circuit."}),
      Field("effect_low", &R::effect_low,
            {"headscope_ablation_effect_low_nats", "nats",
             "Lower end of the bootstrap interval of the effect."}),
      Field("effect_high", &R::effect_high,
            {"headscope_ablation_effect_high_nats", "nats",
             "Upper end of the bootstrap interval of the effect."}),
      Field("control_effects", &R::control_effects,
            {"headscope_ablation_controls",
             "sets",
             "Disjoint control sets that were ablated.",
             {},
             {},
             -1}),
      Field("control_sets", &R::control_sets),
      Field("single_head_effects", &R::single_head_effects),
      Field("control_mean", &R::control_mean,
            {"headscope_ablation_control_mean_nats", "nats",
             "Mean rise of the loss by ablating control sets."}),
      Field("difference_low", &R::difference_low,
            {"headscope_ablation_difference_low_nats", "nats",
             "Lower end of the bootstrap interval of effect minus control mean."}),
      Field("difference_high", &R::difference_high,
            {"headscope_ablation_difference_high_nats", "nats",
             "Upper end of the bootstrap interval of effect minus control mean."}),
      Field("label_effects", &R::label_effects,
            {"headscope_ablation_label_sets",
             "sets",
             "Random label sets, overlap with the circuit allowed, that were ablated.",
             {},
             {},
             -1}),
      Field("labelled_effect", &R::labelled_effect),
      Field("p_value", &R::p_value,
            {"headscope_ablation_p_value_ratio", "1",
             "Share of label sets at least as strong as the circuit, itself included.",
             "no label set was run"}),
      Field("level", &R::level,
            {"headscope_ablation_level_ratio", "1",
             "Level that the p value is held against in this attempt.", "no test was possible"}),
      Field("upper_bound_effect", &R::upper_bound_effect,
            {"headscope_ablation_upper_bound_effect_nats", "nats",
             "Rise of the loss by ablating all heads of the circuit's layers."}),
      Field("attainable_p", &R::attainable_p,
            {"headscope_ablation_attainable_p_ratio", "1",
             "Smallest p value that the heads of these layers can give."}),
      Field(
          "examples", &R::examples,
          {"headscope_ablation_examples", "examples", "Examples the losses rest on.", {}, {}, -2}),
      Field("verdict", &R::verdict), Field("reason", &R::reason));
};

/// One series a phase, of one metric.
constexpr Metric monitor_seconds(std::string_view phase) {
  return {.name = "headscope_monitor_seconds_total",
          .unit = "seconds",
          .help = "Time spent by headscope; all phases but analysis are on the training thread.",
          .label = phase};
}

template <>
struct Fields<Health> {
  using R = Health;
  static constexpr std::string_view kName = "Health";
  static constexpr auto kTable = std::tuple(
      Field("errors", &R::errors),
      Field("taps", &R::taps, {"headscope_taps_total", "calls", "Attention calls measured."}),
      Field("taps_missing", &R::taps_missing,
            {"headscope_taps_missing_total", "calls",
             "Expected layers that did not report at a measured step."}),
      Field("taps_skipped", &R::taps_skipped,
            {"headscope_taps_skipped_total", "calls",
             "Attention calls seen but not measured (recomputed in backward, paused)."}),
      Field("snapshots_dropped", &R::snapshots_dropped,
            {"headscope_snapshots_dropped_total", "snapshots", "Snapshots that a slow sink lost."}),
      Field("nonfinite_readings", &R::nonfinite_readings,
            {"headscope_nonfinite_readings_total", "readings",
             "Head readings with NaN or infinity in them."}),
      Field("probes", &R::probes, {"headscope_probes_total", "probes", "Probes run."}),
      Field("measured_steps", &R::measured_steps,
            {"headscope_measured_steps_total", "steps", "Training steps measured."}),
      Field("deferred", &R::deferred,
            {"headscope_deferred_total", "steps",
             "Steps at which something due was put off by the overhead budget."}),
      Field("budget_ratio", &R::budget_ratio,
            {"headscope_budget_ratio", "ratio",
             "Share of wall time that measuring may take; 0: no bound."}),
      Field("budget_used_ratio", &R::budget_used_ratio,
            {"headscope_budget_used_ratio", "ratio",
             "What was spent in the last ten minutes over what the budget allows in them."}),
      Field("tap_seconds", &R::tap_seconds, monitor_seconds("tap")),
      Field("probe_seconds", &R::probe_seconds, monitor_seconds("probe")),
      Field("ablation_seconds", &R::ablation_seconds, monitor_seconds("ablation")),
      Field("wait_seconds", &R::wait_seconds, monitor_seconds("wait")),
      Field("analysis_seconds", &R::analysis_seconds, monitor_seconds("analysis")));
};

/// Of a snapshot: what it says of the whole step. `segment_start` is left out: histories do not
/// keep it. The doubles in this
/// order are those of the history's blob, which counts them.
template <>
struct Fields<Snapshot> {
  using R = Snapshot;
  static constexpr std::string_view kName = "Snapshot";
  static constexpr auto kTable = std::tuple(
      Field("step", &R::step), Field("tokens", &R::tokens), Field("wall_time", &R::wall_time),
      Field("loss", &R::loss), Field("segment", &R::segment), Field("source", &R::source),
      Field("context", &R::context), Field("probe_interval", &R::probe_interval),
      Field("dtype", &R::dtype), Field("integral_axis", &R::integral_axis),
      Field("controls", &R::controls), Field("patterns", &R::patterns),
      Field("sink_any", &R::sink_any), Field("sink_class", &R::sink_class),
      Field("repeat_gap", &R::repeat_gap));
};

/// visit(field) for every field of a record.
template <typename Record, typename Visit>
constexpr void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... field) { (visit(field), ...); }, Fields<Record>::kTable);
}

}  // namespace headscope
