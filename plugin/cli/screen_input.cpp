#include "plugin/cli/screen_input.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "plugin/cli/input.h"

namespace headscope::cli {
namespace {

constexpr int64_t kNoScreenStep = -1;

/// One selectivity of the file, or a head without any.
struct ScreenedRow {
  std::string phase, batch;
  int64_t step = kNoScreenStep;
  HeadId head;
  std::string pattern;  // with hyphens; empty: none
  double selectivity = kNaN, mass = kNaN, pr_integral = kNaN, sink_mass = kNaN;
  double recall_threshold = kNaN;
};

std::string screened_pattern_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

double screened_number(double value) { return std::isfinite(value) ? value : kNaN; }

/// Turns rows of the file into selectivities, whether it has a row or a column for each pattern.
class ScreenedRows {
 public:
  explicit ScreenedRows(CsvReader& csv)
      : csv_(csv),
        step_(csv.find("step")),
        mass_(csv.find("mass")),
        pr_integral_(csv.find("pr_integral")),
        sink_mass_(csv.find("sink_mass")),
        recall_threshold_(csv.find("recall_threshold")),
        phase_(csv.find("phase")),
        batch_(csv.find("batch")) {
    csv.require("head");
    if (csv.find("selectivity")) {
      selectivity_ = csv.require("selectivity");
      pattern_ = csv.require("pattern");
      return;
    }
    for (const auto& pattern : standard_patterns()) {
      std::string column = pattern.name;
      std::replace(column.begin(), column.end(), '-', '_');
      auto found = csv.find(pattern.name);
      if (!found) found = csv.find(column);
      if (found) wide_.emplace_back(pattern.name, *found);
    }
    if (wide_.empty()) csv.require("selectivity");  // says which columns there are
  }

  void take_row(std::vector<ScreenedRow>& rows) const {
    ScreenedRow row;
    row.head = csv_.head();
    if (step_) row.step = csv_.count(*step_, std::numeric_limits<int64_t>::max());
    if (phase_) row.phase = csv_.text(*phase_);
    if (batch_) row.batch = csv_.text(*batch_);
    if (pr_integral_) row.pr_integral = screened_number(csv_.number(*pr_integral_));
    if (sink_mass_) row.sink_mass = screened_number(csv_.number(*sink_mass_));
    if (!selectivity_) {
      for (const auto& [pattern, column] : wide_) {
        row.pattern = pattern;
        row.selectivity = screened_number(csv_.number(column));
        rows.push_back(row);
      }
      return;
    }
    row.pattern = pattern_of_row();
    row.selectivity = screened_number(csv_.number(*selectivity_));
    if (mass_) row.mass = screened_number(csv_.number(*mass_));
    if (recall_threshold_) row.recall_threshold = screened_number(csv_.number(*recall_threshold_));
    rows.push_back(std::move(row));
  }

 private:
  std::string pattern_of_row() const {
    const std::string& name = csv_.text(*pattern_);
    const auto allowed = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    };
    if (!std::all_of(name.begin(), name.end(), allowed))
      throw csv_.error(*pattern_, "is no pattern name (a-z, 0-9, '_' and '-')");
    return screened_pattern_name(name);
  }

  CsvReader& csv_;
  std::optional<size_t> step_, mass_, pr_integral_, sink_mass_, recall_threshold_, phase_, batch_;
  std::optional<size_t> selectivity_, pattern_;
  std::vector<std::pair<std::string, size_t>> wide_;
};

/// Standard patterns that the rows have, then the others in order of appearance.
std::vector<Pattern> patterns_of(const std::vector<ScreenedRow>& rows) {
  std::vector<std::string> names;
  for (const auto& row : rows)
    if (!row.pattern.empty() && std::find(names.begin(), names.end(), row.pattern) == names.end())
      names.push_back(row.pattern);
  std::vector<Pattern> patterns;
  for (auto& pattern : standard_patterns()) {
    if (std::erase(names, pattern.name) > 0) patterns.push_back(std::move(pattern));
  }
  for (const auto& name : names) {
    Pattern& other = patterns.emplace_back();
    other.name = name;
  }
  return patterns;
}

/// Leaves the rows of the step to be screened and notes which it is.
void keep_one_step(std::vector<ScreenedRow>& rows, const ScreenArguments& arguments,
                   RecordedScreen& screen) {
  if (rows.empty()) throw InputError(arguments.file + ": no row to screen");
  screen.phase = arguments.phase.value_or(rows.back().phase);
  const std::string last_phase = rows.back().phase;
  screen.other_phases =
      std::erase_if(rows, [&](const auto& row) { return row.phase != screen.phase; });
  if (rows.empty())
    throw InputError(arguments.file + ": no row of phase '" + screen.phase + "'; the last is of '" +
                     last_phase + "'");
  int64_t step = kNoScreenStep;
  for (const auto& row : rows) step = std::max(step, row.step);
  if (arguments.step && step == kNoScreenStep)
    throw InputError(arguments.file + ": there is no column 'step', so --step " +
                     std::to_string(*arguments.step) + " means nothing");
  const int64_t last = step;
  step = arguments.step.value_or(step);
  screen.other_steps = std::erase_if(rows, [&](const auto& row) { return row.step != step; });
  if (rows.empty())
    throw InputError(arguments.file + ": no row of step " + std::to_string(step) +
                     (screen.phase.empty() ? "" : " in phase '" + screen.phase + "'") +
                     "; the last is " + std::to_string(last));
  if (step != kNoScreenStep) screen.step = step;
}

void check_same_heads(const std::string& file, const RecordedScreen& screen) {
  for (const auto& batch : screen.batches) {
    const auto& first = screen.batches.front();
    const bool same =
        std::equal(batch.heads.begin(), batch.heads.end(), first.heads.begin(), first.heads.end(),
                   [](const auto& a, const auto& b) { return a.id == b.id; });
    if (!same)
      throw InputError(file + ": batch '" + batch.name + "' has other heads than batch '" +
                       first.name + "'; each must have all of them");
  }
}

}  // namespace

RecordedScreen read_recorded_screen(const ScreenArguments& arguments) {
  Input input(arguments.file);
  CsvReader csv(input.stream(), input.name());
  const SourceFilter filter(csv, arguments.source);
  const ScreenedRows reader(csv);
  const auto context = csv.find("context"), threshold = csv.find("formed_threshold");
  RecordedScreen screen;
  std::vector<ScreenedRow> rows;
  while (csv.next()) {
    if (!filter.admits(csv)) {
      ++screen.other_sources;
      continue;
    }
    reader.take_row(rows);
    if (arguments.context) continue;
    if (threshold && !rows.back().pattern.empty())
      note_threshold(csv, *threshold, rows.back().pattern, screen.formed_thresholds);
    if (!context) continue;
    const int64_t here = csv.count(*context, std::numeric_limits<int32_t>::max());
    if (screen.context && *screen.context != here)
      throw csv.error(*context, "differs from " + std::to_string(*screen.context) +
                                    " before; choose one with --context");
    screen.context = here;
  }
  keep_one_step(rows, arguments, screen);
  screen.rows = static_cast<int64_t>(rows.size());
  screen.patterns = patterns_of(rows);
  if (screen.patterns.empty())
    throw InputError(arguments.file + ": no row with a pattern and a selectivity");

  std::vector<std::map<HeadId, HeadReading>> heads;
  std::map<std::pair<size_t, HeadId>, std::vector<bool>> seen;
  for (const auto& row : rows) {
    const auto found = std::find_if(screen.batches.begin(), screen.batches.end(),
                                    [&](const auto& batch) { return batch.name == row.batch; });
    const auto b = static_cast<size_t>(found - screen.batches.begin());
    if (found == screen.batches.end()) {
      screen.batches.push_back({row.batch, {}});
      heads.emplace_back();
    }
    HeadReading& head = heads[b][row.head];
    head.id = row.head;
    head.patterns.resize(screen.patterns.size());
    if (!std::isnan(row.pr_integral)) head.pr_integral = row.pr_integral;
    if (!std::isnan(row.sink_mass)) head.sink_mass = row.sink_mass;
    if (row.pattern.empty()) continue;
    if (!std::isnan(row.recall_threshold))
      screen.recall_thresholds[row.pattern] = row.recall_threshold;
    const auto pattern = std::find_if(screen.patterns.begin(), screen.patterns.end(),
                                      [&](const auto& known) { return known.name == row.pattern; });
    const auto p = static_cast<size_t>(pattern - screen.patterns.begin());
    auto& had = seen[{b, row.head}];
    had.resize(screen.patterns.size());
    screen.superseded += had[p];
    had[p] = true;
    screen.skipped += std::isnan(row.selectivity);
    head.patterns[p].selectivity = row.selectivity;
    head.patterns[p].mass = row.mass;
  }
  for (size_t b = 0; b < heads.size(); ++b)
    for (auto& [id, head] : heads[b]) screen.batches[b].heads.push_back(std::move(head));
  check_same_heads(arguments.file, screen);
  return screen;
}

}  // namespace headscope::cli
