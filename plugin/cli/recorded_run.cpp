#include "plugin/cli/recorded_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "headscope/patterns.h"
#include "plugin/cli/input.h"

namespace headscope::cli {
namespace {

std::string underscored(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// Columns of the file; those that may be missing are optional.
struct Columns {
  explicit Columns(const CsvReader& csv)
      : step(csv.require("step")),
        head(csv.require("head")),
        pattern(csv.find("pattern")),
        mass(csv.find("mass")),
        margin(csv.find("margin")),
        participation_ratio(csv.find("participation_ratio")),
        phase(csv.find("phase")),
        context(csv.find("context")),
        formed_threshold(csv.find("formed_threshold")) {
    selectivity = csv.find("selectivity");
    if (!selectivity) selectivity = csv.find("value");
    if (!selectivity) find_patterns(csv);
    if (!selectivity && of_pattern.empty()) csv.require("selectivity");
    if (!participation_ratio) participation_ratio = csv.find("pr");
  }

  size_t step, head;
  std::optional<size_t> selectivity, pattern, mass, margin, participation_ratio, phase, context,
      formed_threshold;
  std::vector<std::pair<std::string, size_t>> of_pattern;  // one column of selectivities a pattern

 private:
  void find_patterns(const CsvReader& csv) {
    for (const auto& pattern : standard_patterns()) {
      for (const auto& name : {pattern.name, underscored(pattern.name)})
        if (const auto column = csv.find(name)) {
          of_pattern.emplace_back(name, *column);
          break;
        }
    }
  }
};

/// Where a series of one pattern and head has come to.
struct Series {
  size_t phase = 0;
  size_t part = 0;  // of the phase: how often the step went back
  int64_t step = -1;
};

/// Collects rows under stretches that are put in order at the end.
class Collector {
 public:
  Collector(CsvReader& csv, const ReplayArguments& arguments)
      : csv_(csv), columns_(csv), arguments_(arguments) {}

  void take_row();
  RecordedRun finish();

 private:
  using SeriesKey = std::pair<uint32_t, HeadId>;  // number of the pattern in patterns_

  std::string pattern_of_row();
  size_t phase_of_row();
  Series& advance(const SeriesKey& key, int64_t step);
  void note_context();
  static int64_t put_in_order(std::vector<RecordedReading>& readings);
  void take_reading(const std::string& pattern, size_t column, int64_t step, HeadId head);
  double optional_number(std::optional<size_t> column) const {
    return column ? csv_.number(*column) : kNaN;
  }

  CsvReader& csv_;
  const Columns columns_;
  const ReplayArguments& arguments_;
  std::vector<std::string> phases_;  // in order of appearance
  std::map<SeriesKey, Series> series_;
  std::map<std::pair<size_t, size_t>, std::map<int64_t, RecordedProbe>> stretches_;
  std::vector<std::string> patterns_;  // in order of appearance
  RecordedRun run_;
};

std::string Collector::pattern_of_row() {
  if (!columns_.pattern || csv_.text(*columns_.pattern).empty()) return arguments_.pattern;
  const std::string& name = csv_.text(*columns_.pattern);
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  if (!std::all_of(name.begin(), name.end(), allowed))
    throw csv_.error(*columns_.pattern, "is no pattern name (a-z, 0-9, '_' and '-')");
  return name;
}

size_t Collector::phase_of_row() {
  if (!columns_.phase) {
    if (phases_.empty()) phases_.emplace_back();
    return 0;
  }
  const std::string& label = csv_.text(*columns_.phase);
  const auto found = std::find(phases_.begin(), phases_.end(), label);
  const auto index = static_cast<size_t>(found - phases_.begin());
  if (found == phases_.end()) phases_.push_back(label);
  return index;
}

Series& Collector::advance(const SeriesKey& key, int64_t step) {
  const size_t phase = phase_of_row();
  const auto [found, is_new] = series_.try_emplace(key, Series{phase, 0, -1});
  Series& series = found->second;
  if (phase < series.phase)
    throw csv_.error(*columns_.phase, "is a phase that ended earlier; name each phase once");
  if (phase > series.phase)
    series = {phase, 0, -1};
  else if (step < series.step)
    ++series.part;
  series.step = step;
  return series;
}

void Collector::note_context() {
  if (!columns_.context || arguments_.context) return;
  const int64_t context = csv_.count(*columns_.context, std::numeric_limits<int32_t>::max());
  if (run_.context && *run_.context != context)
    throw csv_.error(*columns_.context, "differs from " + std::to_string(*run_.context) +
                                            " before; choose one with --context");
  run_.context = context;
}

void Collector::take_row() {
  ++run_.rows;
  const int64_t step = csv_.count(columns_.step, std::numeric_limits<int64_t>::max());
  const HeadId head = csv_.head();
  note_context();
  if (columns_.selectivity) {
    const bool nothing = columns_.pattern && csv_.text(*columns_.pattern).empty() &&
                         !std::isfinite(csv_.number(*columns_.selectivity));
    if (nothing)
      ++run_.skipped;  // a head without patterns
    else
      take_reading(pattern_of_row(), *columns_.selectivity, step, head);
  }
  for (const auto& [pattern, column] : columns_.of_pattern)
    take_reading(pattern, column, step, head);
}

void Collector::take_reading(const std::string& pattern, size_t column, int64_t step, HeadId head) {
  RecordedReading reading;
  reading.head = head;
  reading.selectivity = csv_.number(column);
  reading.participation_ratio = optional_number(columns_.participation_ratio);
  if (columns_.selectivity) {  // with one column a pattern, these could be of any of them
    reading.mass = optional_number(columns_.mass);
    reading.margin = optional_number(columns_.margin);
    if (columns_.formed_threshold && !arguments_.context)
      note_threshold(csv_, *columns_.formed_threshold, pattern, run_.formed_thresholds);
  }
  if (!std::isfinite(reading.selectivity)) {
    ++run_.skipped;
    reading.selectivity = kNaN;  // the tracker holds
  }
  if (!std::isfinite(reading.mass)) reading.mass = kNaN;
  const auto found = std::find(patterns_.begin(), patterns_.end(), pattern);
  reading.pattern = static_cast<uint32_t>(found - patterns_.begin());
  if (found == patterns_.end()) patterns_.push_back(pattern);
  const Series& series = advance({reading.pattern, head}, step);
  RecordedProbe& probe = stretches_[{series.phase, series.part}][step];
  probe.readings.push_back(reading);
  const double tokens = csv_.tokens();
  if (std::isfinite(tokens)) probe.tokens = tokens;
}

/// Puts readings in order; of several of a head and pattern the last one stays.
int64_t Collector::put_in_order(std::vector<RecordedReading>& readings) {
  const auto key = [](const auto& reading) { return std::pair(reading.head, reading.pattern); };
  std::stable_sort(readings.begin(), readings.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
  size_t kept = 0;
  for (const auto& reading : readings) {
    if (kept == 0 || key(readings[kept - 1]) != key(reading)) ++kept;
    readings[kept - 1] = reading;
  }
  const auto superseded = static_cast<int64_t>(readings.size() - kept);
  readings.resize(kept);
  return superseded;
}

RecordedRun Collector::finish() {
  for (const auto& pattern : standard_patterns())
    for (const auto& name : {pattern.name, underscored(pattern.name)})
      if (std::find(patterns_.begin(), patterns_.end(), name) != patterns_.end() &&
          std::find(run_.patterns.begin(), run_.patterns.end(), name) == run_.patterns.end())
        run_.patterns.push_back(name);
  for (const auto& name : patterns_)
    if (std::find(run_.patterns.begin(), run_.patterns.end(), name) == run_.patterns.end())
      run_.patterns.push_back(name);
  for (const auto& [key, series] : series_) run_.heads.push_back(key.second);
  std::sort(run_.heads.begin(), run_.heads.end());
  run_.heads.erase(std::unique(run_.heads.begin(), run_.heads.end()), run_.heads.end());

  std::vector<uint32_t> number;  // in run_.patterns, of each of patterns_
  for (const auto& name : patterns_)
    number.push_back(static_cast<uint32_t>(
        std::find(run_.patterns.begin(), run_.patterns.end(), name) - run_.patterns.begin()));
  for (auto& [place, steps] : stretches_) {
    Stretch& stretch = run_.stretches.emplace_back();
    stretch.phase = phases_[place.first];
    for (auto& [step, probe] : steps) {
      for (RecordedReading& reading : probe.readings) reading.pattern = number[reading.pattern];
      run_.superseded += put_in_order(probe.readings);
    }
    stretch.probes = std::move(steps);
  }
  return std::move(run_);
}

}  // namespace

RecordedRun read_recorded_run(const ReplayArguments& arguments) {
  Input input(arguments.file);
  CsvReader csv(input.stream(), input.name());
  Collector collector(csv, arguments);
  const SourceFilter filter(csv, arguments.source);
  while (csv.next())
    if (filter.admits(csv)) collector.take_row();
  return collector.finish();
}

}  // namespace headscope::cli
