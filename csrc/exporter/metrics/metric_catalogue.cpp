#include "csrc/exporter/metrics/metric_catalogue.h"

#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "headscope/fields.h"

namespace headscope::exporter {
namespace {

constexpr MetricKind kGauge = MetricKind::kGauge;
constexpr MetricKind kCounter = MetricKind::kCounter;

constexpr std::string_view kHead = "layer,head,source";
constexpr std::string_view kHeadPattern = "layer,head,source,pattern";
constexpr std::string_view kNever = "never";
constexpr std::string_view kNoSnapshot = "before the first snapshot";
constexpr std::string_view kNotMeasured = "not measured in this source's last snapshot";
constexpr std::string_view kProbeOnly = "source `train`; not measured";
constexpr std::string_view kNoCircuits = "before the first probe";
constexpr std::string_view kNoAblation = "before the first ablation of the pattern; not run";

// What stands in no table of figures or fields, in parts: the tables' metrics come between.

const MetricSpec kRun[] = {
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
};

const MetricSpec kHeadStates[] = {
    {"headscope_head_finite", kGauge, kHead, "1",
     "1 when the head's output and scores are finite, else 0; its figures are NaN then.",
     "`HeadReading::finite`", kNoSnapshot},
    {"headscope_head_specialising", kGauge, kHead, "1",
     "1 when the head's participation ratio rose above its null and held; names no pattern.",
     "`HeadReading::specialising`", "source `train`"},
};

const MetricSpec kSeries[] = {
    {"headscope_series_cap", kGauge, "", "series", "Head series that one scrape shows at most.",
     "the exporter", kNoSnapshot},
    {"headscope_series_left_out", kGauge, "", "series",
     "Head series beyond the cap of a scrape; the heads of the lowest selectivity go first.",
     "the exporter", kNoSnapshot},
    {"headscope_heads_left_out", kGauge, "", "heads",
     "Heads beyond the cap of a scrape; headscope_heads_* have them all the same.", "the exporter",
     kNoSnapshot},
};

/// Over all heads, those beyond the cap too.
const MetricSpec kHeads[] = {
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
};

const MetricSpec kCircuits[] = {
    {"headscope_circuit_state", kGauge, "pattern,state", "1",
     "1 for the state that the pattern's circuit is in, 0 for the others.",
     "`CircuitReading::state`", kNoCircuits},
    {"headscope_circuit_heads", kGauge, "pattern", "heads", "Heads in the pattern's circuit.",
     "`CircuitReading::heads`", kNoCircuits},
    {"headscope_circuit_member", kGauge, "pattern,layer,head", "1",
     "Always 1; the heads of the pattern's circuit.", "`CircuitReading::heads`",
     "the head is not in the circuit"},
    {"headscope_circuit_deadline_tokens", kGauge, "pattern", "tokens",
     "Tokens by which the user wants the pattern's circuit to have formed.",
     "`Options::deadline_tokens`", "no deadline was given"},
};

const MetricSpec kEvents[] = {
    {"headscope_events_total", kCounter, "kind,pattern,level", "events",
     "Changes of state since this process attached, of whole circuits and of single heads.",
     "`Snapshot::events`", "before the first snapshot; kinds never seen on the head level"},
};

/// The latest report of a pattern and metric.
const MetricSpec kVerdict[] = {
    {"headscope_ablation_verdict", kGauge, "pattern,metric,verdict", "1",
     "1 for the verdict of the latest ablation, 0 for the others.", "`AblationReport::verdict`",
     kNoAblation},
};

/// headscope's own cost and errors.
const MetricSpec kErrors[] = {
    {"headscope_errors_total", kCounter, "kind", "errors",
     "Failures inside headscope, by kind; none of them reached the training program.",
     "`Health::errors`", kNever},
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

MetricKind kind_of(std::string_view name) { return name.ends_with("_total") ? kCounter : kGauge; }

std::string origin_of(std::string_view record, std::string_view field) {
  return "`" + std::string(record) + "::" + std::string(field) + "`";
}

/// Adds the metrics of a table of figures.
template <typename Record, size_t n>
void append_figures(const Figure<Record> (&figures)[n], std::string_view record,
                    std::string_view labels, std::vector<MetricSpec>& all) {
  for (const Figure<Record>& figure : figures) {
    const Metric& metric = figure.metric;
    if (metric.name.empty()) continue;
    all.push_back({metric.name, kind_of(metric.name), labels, metric.unit, metric.help,
                   origin_of(record, figure.name), figure.probe_only ? kProbeOnly : kNotMeasured});
  }
}

/// Adds the metrics of a record's fields, lower ranks first; fields of one metric share a row.
template <typename Record>
void append_fields(std::string_view labels, std::string_view absent, std::vector<MetricSpec>& all) {
  std::set<int> ranks;
  for_each_field<Record>([&](const auto& field) { ranks.insert(field.metric.rank); });
  for (const int rank : ranks)
    for_each_field<Record>([&](const auto& field) {
      const Metric& metric = field.metric;
      if (metric.name.empty() || metric.rank != rank) return;
      if (!all.empty() && all.back().name == metric.name) {
        all.back().origin += ", `" + std::string(field.name) + "`";
        return;
      }
      all.push_back({metric.name, kind_of(metric.name), metric.label.empty() ? labels : "phase",
                     metric.unit, metric.help, origin_of(Fields<Record>::kName, field.name),
                     metric.absent.empty() ? absent : metric.absent});
    });
}

std::vector<MetricSpec> whole_catalogue() {
  std::vector<MetricSpec> all;
  const auto append = [&](std::span<const MetricSpec> part) {
    all.insert(all.end(), part.begin(), part.end());
  };
  append(kRun);
  append_figures(kHeadFigures, "HeadReading", kHead, all);
  append(kHeadStates);
  append_figures(kPatternFigures, "PatternReading", kHeadPattern, all);
  append(kSeries);
  append(kHeads);
  append(kCircuits);
  append_fields<CircuitReading>("pattern", kNoCircuits, all);
  append(kEvents);
  append(kVerdict);
  append_fields<AblationReport>("pattern,metric", kNoAblation, all);
  append(kErrors);
  append_fields<Health>("", kNever, all);
  return all;
}

}  // namespace

std::span<const MetricSpec> metric_catalogue() {
  // Never destroyed: a server's thread may still read it when the process ends.
  static const auto* const kCatalogue = new std::vector<MetricSpec>(whole_catalogue());
  return *kCatalogue;
}

std::span<const ErrorKind> known_error_kinds() { return kErrorKinds; }

size_t metric_index(std::string_view name) {
  static const auto* const kIndex = [] {
    auto* index = new std::unordered_map<std::string_view, size_t>;
    for (const MetricSpec& spec : metric_catalogue()) index->emplace(spec.name, index->size());
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
  for (const MetricSpec& spec : metric_catalogue()) {
    const std::string labels = spec.labels == "*" ? "the facts' names" : std::string(spec.labels);
    text += "| `" + std::string(spec.name) + "` | " +
            (spec.kind == MetricKind::kCounter ? "counter" : "gauge") + " | " + labels + " | " +
            std::string(spec.unit) + " | " + std::string(spec.help) + " | " + spec.origin + " | " +
            std::string(spec.absent) + " |\n";
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
