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
  using SeriesKey = std::pair<std::string, HeadId>;
  struct Row {
    RecordedReading reading;
    double tokens = kNaN;
  };

  std::string pattern_of_row();
  size_t phase_of_row();
  Series& advance(const SeriesKey& key, int64_t step);
  void note_context();
  void take_reading(const std::string& pattern, size_t column, int64_t step, HeadId head);
  double optional_number(std::optional<size_t> column) const {
    return column ? csv_.number(*column) : kNaN;
  }

  CsvReader& csv_;
  const Columns columns_;
  const ReplayArguments& arguments_;
  std::vector<std::string> phases_;  // in order of appearance
  std::map<SeriesKey, Series> series_;
  std::map<std::pair<size_t, size_t>, std::map<int64_t, std::map<SeriesKey, Row>>> stretches_;
  std::vector<std::string> patterns_;
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
  Row row;
  row.tokens = csv_.tokens();
  row.reading.figures.selectivity = csv_.number(column);
  row.reading.participation_ratio = optional_number(columns_.participation_ratio);
  if (columns_.selectivity) {  // with one column a pattern, these could be of any of them
    row.reading.figures.mass = optional_number(columns_.mass);
    row.reading.figures.margin = optional_number(columns_.margin);
    if (columns_.formed_threshold && !arguments_.context)
      note_threshold(csv_, *columns_.formed_threshold, pattern, run_.formed_thresholds);
  }
  if (!std::isfinite(row.reading.figures.selectivity)) {
    ++run_.skipped;
    row.reading.figures.selectivity = kNaN;  // the tracker holds
  }
  if (!std::isfinite(row.reading.figures.mass)) row.reading.figures.mass = kNaN;
  const SeriesKey key = {pattern, head};
  if (std::find(patterns_.begin(), patterns_.end(), key.first) == patterns_.end())
    patterns_.push_back(key.first);
  const Series& series = advance(key, step);
  auto& rows = stretches_[{series.phase, series.part}][step];
  if (!rows.insert_or_assign(key, row).second) ++run_.superseded;
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

  for (const auto& [place, steps] : stretches_) {
    Stretch& stretch = run_.stretches.emplace_back();
    stretch.phase = phases_[place.first];
    for (const auto& [step, rows] : steps) {
      RecordedProbe& probe = stretch.probes[step];
      for (const auto& [key, row] : rows) {
        const auto pattern = std::find(run_.patterns.begin(), run_.patterns.end(), key.first);
        const auto head = std::lower_bound(run_.heads.begin(), run_.heads.end(), key.second);
        probe.readings[{static_cast<size_t>(pattern - run_.patterns.begin()),
                        static_cast<size_t>(head - run_.heads.begin())}] = row.reading;
        if (!std::isfinite(probe.tokens)) probe.tokens = row.tokens;
      }
    }
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
