#include "headscope/screen_rows.h"

#include <algorithm>
#include <stdexcept>

#include "csrc/circuits/row_means.h"
#include "headscope/random_state.h"

namespace headscope {
namespace {

constexpr size_t kReferenceControlCount = 50;
constexpr int kReferenceTries = 200;

[[noreturn]] void refuse_rows(const std::string& what) {
  throw std::invalid_argument("headscope screen: " + what);
}

/// Rows with their targets; the controls are the caller's.
ScreenRows rows_with_targets(std::span<const int64_t> first, std::span<const int64_t> query,
                             int64_t context) {
  if (first.size() != query.size())
    refuse_rows("first has " + std::to_string(first.size()) + " rows, query " +
                std::to_string(query.size()));
  if (first.empty()) refuse_rows("no rows");
  ScreenRows rows;
  rows.context = context;
  rows.query.assign(query.begin(), query.end());
  for (const char* name :
       {"induction", "previous-token", "duplicate-token", "first-token", "self", "local"})
    rows.patterns.push_back({name, {}});
  for (size_t r = 0; r < first.size(); ++r) {
    const int64_t f = first[r], q = query[r];
    if (q < 6 || q >= context || f < 0 || f + 1 >= q)
      refuse_rows("row " + std::to_string(r) + " has the pair at " + std::to_string(f) +
                  " and the query at " + std::to_string(q) +
                  "; needed are 0 <= pair, pair + 1 < query and 6 <= query < " +
                  std::to_string(context));
    const std::vector<int64_t> targets[] = {{f + 1}, {q - 1}, {f},
                                            {0},     {q},     {q - 5, q - 4, q - 3, q - 2}};
    for (size_t p = 0; p < rows.patterns.size(); ++p)
      rows.patterns[p].positions.push_back(targets[p]);
  }
  return rows;
}

/// Empties the targets of a planted pair that does not stand alone in its row.
void leave_ambiguous_out(std::span<const int64_t> tokens, std::span<const int64_t> pair_position,
                         ScreenRows& rows) {
  const auto context = static_cast<size_t>(rows.context);
  if (tokens.size() != pair_position.size() * context)
    refuse_rows(std::to_string(tokens.size()) + " tokens are not " +
                std::to_string(pair_position.size()) + " rows of " + std::to_string(rows.context));
  for (size_t r = 0; r < pair_position.size(); ++r) {
    const auto row = tokens.subspan(r * context, context - 1);
    const auto pair = static_cast<size_t>(pair_position[r]);
    const auto times = [&](int64_t token) { return std::count(row.begin(), row.end(), token); };
    if (times(row[pair]) == 1 && times(row[pair + 1]) == 1) continue;
    for (ScreenTargets& targets : rows.patterns)
      if (targets.pattern == "induction" || targets.pattern == "duplicate-token")
        targets.positions[r].clear();
  }
}

void take_ordinary_controls(ScreenRows& rows) {
  for (size_t r = 0; r < rows.query.size(); ++r) {
    auto& controls = rows.controls.emplace_back();
    for (int64_t t = 1; t < rows.query[r]; ++t)
      if (!is_target_of_any(rows, r, t)) controls.push_back(t);
  }
}

bool holds(const std::vector<int64_t>& positions, int64_t position) {
  return std::find(positions.begin(), positions.end(), position) != positions.end();
}

std::vector<int64_t> shared_reference_controls(int64_t context) {
  const int64_t end = context - 6;  // of what is no near position, from 1
  const auto wanted = std::min(kReferenceControlCount, static_cast<size_t>(end - 1));
  RandomState random(0);
  std::vector<int64_t> controls;
  while (controls.size() < wanted) {
    const int64_t t = random.integer(1, context - 1);
    if (t < end && !holds(controls, t)) controls.push_back(t);
  }
  return controls;
}

void draw_row_controls(ScreenRows& rows) {
  RandomState random(0);
  for (size_t r = 0; r < rows.query.size(); ++r) {
    auto& controls = rows.controls.emplace_back();
    for (int n = 0; n < kReferenceTries && controls.size() < kReferenceControlCount; ++n) {
      const int64_t t = random.integer(1, rows.query[r]);
      if (!is_target_of_any(rows, r, t) && !holds(controls, t)) controls.push_back(t);
    }
    controls.resize(kReferenceControlCount, controls.empty() ? 1 : controls.back());
  }
}

}  // namespace

ScreenRows planted_screen_rows(std::span<const int64_t> pair_position, int64_t context,
                               ScreenControls controls, std::span<const int64_t> tokens) {
  if (context < 16)
    refuse_rows("context must be at least 16 to tell six patterns apart, got " +
                std::to_string(context));
  const std::vector<int64_t> query(pair_position.size(), context - 1);
  ScreenRows rows = rows_with_targets(pair_position, query, context);
  if (controls == ScreenControls::kOrdinary)
    take_ordinary_controls(rows);
  else
    rows.controls.assign(query.size(), shared_reference_controls(context));
  if (!tokens.empty()) leave_ambiguous_out(tokens, pair_position, rows);
  return rows;
}

ScreenRows natural_screen_rows(std::span<const int64_t> first, std::span<const int64_t> query,
                               int64_t context, ScreenControls controls) {
  ScreenRows rows = rows_with_targets(first, query, context);
  if (controls == ScreenControls::kOrdinary)
    take_ordinary_controls(rows);
  else
    draw_row_controls(rows);
  return rows;
}

ScreenRows pattern_screen_rows(std::span<const int64_t> tokens, int64_t context,
                               std::span<const int64_t> query, std::span<const Pattern> patterns) {
  validate_patterns(patterns);
  if (query.empty()) refuse_rows("no rows");
  if (context < 2 || tokens.size() != query.size() * static_cast<size_t>(context))
    refuse_rows(std::to_string(tokens.size()) + " tokens are not " + std::to_string(query.size()) +
                " rows of " + std::to_string(context));
  ScreenRows rows;
  rows.context = context;
  rows.query.assign(query.begin(), query.end());
  for (const auto& pattern : patterns) rows.patterns.push_back({pattern.name, {}});
  for (size_t r = 0; r < query.size(); ++r) {
    const int64_t q = query[r];
    if (q < 1 || q >= context)
      refuse_rows("row " + std::to_string(r) + " has its query at " + std::to_string(q) +
                  "; needed is 1 <= query < " + std::to_string(context));
    const auto row = tokens.subspan(r * static_cast<size_t>(context), static_cast<size_t>(context));
    for (size_t p = 0; p < patterns.size(); ++p) {
      auto targets = patterns[p].targets(row.first(static_cast<size_t>(q) + 1), q);
      for (const int64_t t : targets) {
        if (t < 0 || t > q)
          refuse_rows("pattern " + patterns[p].name + " has the target " + std::to_string(t) +
                      " in row " + std::to_string(r) + ", whose query is at " + std::to_string(q));
      }
      rows.patterns[p].positions.push_back(std::move(targets));
    }
  }
  take_ordinary_controls(rows);
  return rows;
}

std::vector<HeadReading> screen_readings(const ScreenRows& rows, std::span<const HeadId> heads,
                                         const HeadAttention& attention) {
  std::vector<HeadReading> readings;
  for (size_t h = 0; h < heads.size(); ++h) {
    const HeadWeights weights(rows, attention(h));
    HeadReading& reading = readings.emplace_back();
    reading.id = heads[h];
    for (const auto& pattern : rows.patterns) {
      double target = 0, control = 0, mass = 0, counted = 0;
      for (size_t r = 0; r < rows.query.size(); ++r) {
        if (!row_counts(rows, pattern, r)) continue;
        ++counted;
        target += weights.mean(r, pattern.positions[r]);
        mass += weights.sum(r, pattern.positions[r]);
        control += weights.mean(r, rows.controls[r]);
      }
      PatternReading& figures = reading.patterns.emplace_back();
      if (counted == 0) continue;
      figures.selectivity = ratio_of_means(target / counted, control / counted);
      figures.mass = mass / counted;
      figures.control_mass = control / counted;
    }
  }
  return readings;
}

}  // namespace headscope
