// Any bytes as what a run may hold: names, texts and figures, serialised for Prometheus, the API
// and the report. Inputs whose first byte is a multiple of 4 are instead read back as a history
// that somebody else wrote.

#include <cstdint>
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
#include "headscope/fields.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/require.h"
#include "tests/support/exporter/exposition.h"

namespace headscope::fuzz {
namespace {

using exporter::RunApi;

// One overload a type that a field of a record may have.

void fill(ByteSource& source, double& value) { value = source.number(); }
void fill(ByteSource& source, int64_t& value) { value = source.whole(); }
void fill(ByteSource& source, uint64_t& value) { value = static_cast<uint64_t>(source.whole()); }
void fill(ByteSource& source, bool& value) { value = source.flag(); }
void fill(ByteSource& source, std::string& value) { value = source.text(); }
void fill(ByteSource& source, HeadId& id) { id = {source.byte(), source.byte()}; }
void fill(ByteSource& source, Source& value) {
  value = source.flag() ? Source::kProbe : Source::kTrain;
}
void fill(ByteSource& source, CircuitState& state) {
  state = static_cast<CircuitState>(source.count(kCircuitStates - 1));
}

void fill(ByteSource& source, PatternReading& reading);
void fill(ByteSource& source, HeadReading& head);
template <typename Record>
requires requires { Fields<Record>::kTable; }
void fill(ByteSource& source, Record& record);

template <typename Item>
void fill(ByteSource& source, std::vector<Item>& items) {
  items.resize(source.count(3));
  for (Item& item : items) fill(source, item);
}

template <typename Value>
void fill(ByteSource& source, std::map<std::string, Value>& items) {
  for (size_t n = source.count(3); n > 0; --n) {
    const std::string name = source.text();
    fill(source, items[name]);
  }
}

template <typename Record, size_t n>
void fill_figures(ByteSource& source, const Figure<Record> (&figures)[n], Record& record) {
  for (const Figure<Record>& figure : figures) fill(source, record.*figure.member);
}

void fill(ByteSource& source, PatternReading& reading) {
  fill_figures(source, kPatternFigures, reading);
}

void fill(ByteSource& source, HeadReading& head) {
  fill_figures(source, kHeadFigures, head);
  fill(source, head.eigenvalues);
  fill(source, head.patterns);
  fill(source, head.best_pattern);
  fill(source, head.samples);
  fill(source, head.finite);
  fill(source, head.specialising);
}

/// A record that has a table of its fields.
template <typename Record>
requires requires { Fields<Record>::kTable; }
void fill(ByteSource& source, Record& record) {
  for_each_field<Record>([&](const auto& field) { fill(source, record.*field.member); });
}

std::shared_ptr<const Snapshot> snapshot(ByteSource& source) {
  auto snapshot = std::make_shared<Snapshot>();
  for_each_field<Snapshot>([&](const auto& field) { fill(source, *snapshot.*field.member); });
  snapshot->segment = source.byte() % 3;
  snapshot->segment_start = source.whole();
  fill(source, snapshot->heads);
  int32_t layer = 0;  // sorted by id, as promised
  for (HeadReading& head : snapshot->heads) head.id = {layer += source.byte() + 1, source.byte()};
  fill(source, snapshot->circuits);
  fill(source, snapshot->events);
  fill(source, snapshot->ablations);
  fill(source, snapshot->health);
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
  fill(source, run.facts);
  fill(source, run.deadlines);
  fill(source, run.health);
  for (size_t n = source.count(3); n > 0; --n) run.snapshots.push_back(snapshot(source));
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
