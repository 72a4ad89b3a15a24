// Any bytes as what a run may hold: names, texts and figures, serialised for Prometheus, the API
// and the report. Inputs whose first byte is a multiple of 4 are instead read back as a history
// that somebody else wrote.

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "csrc/exporter/history/blob_codec.h"
#include "csrc/exporter/history/history_json.h"
#include "csrc/exporter/metrics/health_metrics.h"
#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "csrc/exporter/page/page.h"
#include "csrc/exporter/page/run_api.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/require.h"
#include "tests/support/exporter/exposition.h"

namespace headscope::fuzz {
namespace {

using exporter::RunApi;

template <typename Make>
auto list(ByteSource& source, size_t most, const Make& make) {
  std::vector<decltype(make(source))> items;
  for (size_t n = source.count(most); n > 0; --n) items.push_back(make(source));
  return items;
}

template <typename Make>
auto named(ByteSource& source, size_t most, const Make& make) {
  std::map<std::string, decltype(make(source))> items;
  for (size_t n = source.count(most); n > 0; --n) items[source.text()] = make(source);
  return items;
}

void fill(ByteSource& source, std::initializer_list<double*> figures) {
  for (double* figure : figures) *figure = source.number();
}

double number(ByteSource& source) { return source.number(); }
uint64_t natural(ByteSource& source) { return static_cast<uint64_t>(source.whole()); }
std::string text(ByteSource& source) { return source.text(); }
HeadId head_id(ByteSource& source) { return {source.byte(), source.byte()}; }
CircuitState state(ByteSource& source) {
  return static_cast<CircuitState>(source.count(kCircuitStates - 1));
}

PatternReading pattern_reading(ByteSource& source) {
  PatternReading reading;
  fill(source, {&reading.selectivity, &reading.mass, &reading.margin, &reading.control_mass,
                &reading.margin_z, &reading.mass_z});
  return reading;
}

HeadReading head_reading(ByteSource& source) {
  HeadReading head;
  fill(source, {&head.participation_ratio, &head.participation_ratio_centred,
                &head.null_participation_ratio, &head.pr_integral, &head.output_norm, &head.entropy,
                &head.max_logit, &head.sink_mass, &head.prefix_matching});
  head.eigenvalues = list(source, 3, number);
  head.patterns = list(source, 3, pattern_reading);
  head.best_pattern = source.text();
  head.samples = source.whole();
  head.finite = source.flag();
  head.specialising = source.flag();
  return head;
}

CircuitReading circuit(ByteSource& source) {
  CircuitReading circuit;
  circuit.pattern = source.text();
  circuit.state = state(source);
  circuit.heads = list(source, 3, head_id);
  fill(source, {&circuit.formed_threshold, &circuit.critical_margin_z, &circuit.best_selectivity,
                &circuit.emerging_tokens});
  circuit.emerging_step = source.whole();
  circuit.formed_step = source.whole();
  return circuit;
}

Event event(ByteSource& source) {
  Event event;
  event.step = source.whole();
  event.tokens = source.number();
  event.kind = source.text();
  event.pattern = source.text();
  event.head_level = source.flag();
  event.heads = list(source, 2, head_id);
  event.figures = named(source, 3, number);
  event.rule = source.text();
  return event;
}

AblationReport ablation(ByteSource& source) {
  AblationReport report;
  report.pattern = source.text();
  report.metric = source.text();
  report.gate = source.flag();
  report.step = source.whole();
  report.heads = list(source, 2, head_id);
  report.baseline_loss = source.number();
  report.effect = source.number();
  report.control_effects = list(source, 2, number);
  report.control_sets.push_back(list(source, 2, head_id));
  report.examples = source.whole();
  report.verdict = state(source);
  report.reason = source.text();
  return report;
}

Health health(ByteSource& source) {
  Health health;
  health.errors = named(source, 3, natural);
  health.taps = natural(source);
  health.budget_ratio = source.number();
  health.tap_seconds = source.number();
  health.wait_seconds = source.number();
  return health;
}

std::shared_ptr<const Snapshot> snapshot(ByteSource& source) {
  auto snapshot = std::make_shared<Snapshot>();
  snapshot->step = source.whole();
  snapshot->tokens = source.number();
  snapshot->wall_time = source.number();
  snapshot->loss = source.number();
  snapshot->segment = source.byte() % 3;
  snapshot->segment_start = source.whole();
  snapshot->source = source.flag() ? Source::kProbe : Source::kTrain;
  snapshot->context = source.whole();
  snapshot->probe_interval = source.whole();
  snapshot->dtype = source.text();
  snapshot->integral_axis = source.text();
  snapshot->controls = source.text();
  snapshot->patterns = list(source, 3, text);
  snapshot->heads = list(source, 3, head_reading);
  int32_t layer = 0;  // sorted by id, as promised
  for (HeadReading& head : snapshot->heads) head.id = {layer += source.byte() + 1, source.byte()};
  snapshot->circuits = list(source, 3, circuit);
  snapshot->events = list(source, 3, event);
  snapshot->ablations = list(source, 2, ablation);
  snapshot->sink_any = source.number();
  snapshot->repeat_gap = source.number();
  snapshot->health = health(source);
  return snapshot;
}

/// A run as its parts.
struct Run {
  RunFacts facts;
  DeadlineTokens deadlines;
  Health health;
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
};

Run run(ByteSource& source) {
  Run run;
  run.facts = named(source, 3, text);
  run.deadlines = named(source, 2, number);
  run.health = health(source);
  run.snapshots = list(source, 3, snapshot);
  return run;
}

void check_metrics(const Run& run) {
  exporter::ExportState state;
  for (const auto& snapshot : run.snapshots) state = exporter::state_after(state, snapshot);
  const std::string text =
      serialise(exporter::HealthMetrics(run.health, run.facts, run.deadlines)) +
      serialise(exporter::RunMetrics(std::move(state)));
  const std::string fault = testing::Exposition::fault_of(text);
  require(fault.empty(), "Prometheus takes every scrape", fault);
}

nlohmann::json parsed(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  require(!json.is_discarded(), "every document is JSON", text);
  return json;
}

/// The data of a report, as a browser cuts it out.
std::string recorded(const std::string& page) {
  constexpr std::string_view kStart = "<script type=\"application/json\" id=\"recorded\">";
  const size_t start = page.find(kStart) + kStart.size();
  return page.substr(start, page.find("</script", start) - start);
}

void check_documents(const Run& run) {
  RunApi api({.facts = run.facts, .health = {}, .run_dir = {}});
  for (const auto& snapshot : run.snapshots) api.publish(snapshot);
  for (const char* path : {"/api/v1/run", "/api/v1/snapshot", "/api/v1/events"}) {
    const auto response = api.answer({.method = "GET", .path = path, .query = {}});
    require(response.status == 200, "a query without parameters is good", response.body);
    parsed(response.body);
  }
  const std::string data = api.everything(4000);
  const std::string inside = recorded(exporter::self_contained_page(data));
  require(inside.find('<') == std::string::npos, "data opens no element", inside);
  require(parsed(inside) == parsed(data), "a report holds what the API says", inside);
}

/// What is written can be read back.
void check_history(const Snapshot& snapshot) {
  for (const Event& event : snapshot.events) exporter::event_from_json(exporter::to_json(event));
  for (const AblationReport& report : snapshot.ablations) {
    exporter::ablation_from_json(exporter::to_json(report));
  }
  const auto circuits = exporter::circuits_from_json(exporter::to_json(snapshot.circuits));
  require(circuits.size() == snapshot.circuits.size(), "circuits come back", "");
  const auto names = exporter::names_from_json(exporter::to_json(snapshot.patterns));
  require(names.size() == snapshot.patterns.size(), "names come back", "");
  exporter::health_from_json(exporter::to_json(snapshot.health));
  const std::string bytes = exporter::encode_figures(snapshot);
  Snapshot read;
  read.patterns = snapshot.patterns;
  exporter::decode_figures(bytes, read);
  require(exporter::encode_figures(read) == bytes, "figures come back bit for bit", bytes);
}

template <typename Read>
void read_foreign(const Read& read) {
  try {
    read();
  } catch (const std::runtime_error&) {  // nothing else
  }
}

void check_foreign(const std::string& bytes) {
  read_foreign([&] { exporter::event_from_json(bytes); });
  read_foreign([&] { exporter::ablation_from_json(bytes); });
  read_foreign([&] { exporter::circuits_from_json(bytes); });
  read_foreign([&] { exporter::health_from_json(bytes); });
  read_foreign([&] { exporter::names_from_json(bytes); });
  read_foreign([&] {
    Snapshot snapshot;
    exporter::decode_figures(bytes, snapshot);
  });
}

}  // namespace
}  // namespace headscope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headscope::fuzz;
  ByteSource source(std::span(data, size));
  if (source.byte() % 4 == 0) {
    check_foreign(source.rest());
    return 0;
  }
  const Run made = run(source);
  check_metrics(made);
  check_documents(made);
  for (const auto& snapshot : made.snapshots) check_history(*snapshot);
  return 0;
}
