#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "headscope/trajectory.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/input.h"
#include "plugin/cli/json_text.h"

namespace headscope::cli {
namespace {

/// Where the axis lies before where it was at the end of the phase before.
struct AxisReturn {
  size_t after = 0;  // number of the phase before
  HeadId head;       // the first of them
  int64_t heads = 0;
  double from = 0, to = 0;  // tokens or steps
};

/// Rows of heads that lie before the row above them: they may come in any order, but what looks
/// like a restart or a second data phase must not be put in order in silence.
struct Disorder {
  int64_t rows = 0;
  std::set<HeadId> heads;
  HeadId first_head;
  std::string from, to;  // of the first: places of the file's rows

  void note(HeadId head, const std::string& last, const std::string& next) {
    if (rows++ == 0) {
      first_head = head;
      from = last;
      to = next;
    }
    heads.insert(head);
  }
};

/// The row of a head that was read last.
struct LastRow {
  size_t phase = 0;
  int64_t step = -1;
};

/// Readings by head and phase, and what became of the rows.
struct Readings {
  std::vector<std::string> phases;  // in order of appearance; one without the column
  std::map<HeadId, std::map<size_t, std::vector<TrajectoryPoint>>> heads;
  Disorder disorder;
  std::vector<AxisReturn> returns;
  int64_t rows = 0;
  int64_t skipped = 0;     // PR empty or not finite
  int64_t superseded = 0;  // another row of the same phase, head and step came later
  int64_t off_axis = 0;    // no place on the axis
  double most_tokens = 0;

  size_t phase_number(const std::string& name) {
    const auto found = std::find(phases.begin(), phases.end(), name);
    const auto number = static_cast<size_t>(found - phases.begin());
    if (found == phases.end()) phases.push_back(name);
    return number;
  }
};

size_t ratio_column(const CsvReader& csv) {
  for (const char* name : {"participation_ratio", "pr", "value"})
    if (const auto column = csv.find(name)) return *column;
  return csv.require("participation_ratio");
}

std::string place_text(const Readings& readings, const LastRow& row) {
  const std::string& phase = readings.phases[row.phase];
  return "step " + std::to_string(row.step) + (phase.empty() ? "" : " of phase '" + phase + "'");
}

Readings read(const RankArguments& arguments, bool needs_tokens) {
  Input input(arguments.file);
  CsvReader csv(input.stream(), input.name());
  csv.require("head");
  const size_t step = csv.require("step"), ratio = ratio_column(csv);
  if (needs_tokens && !csv.has_tokens())
    throw InputError(input.name() + ": no column 'tokens' (a count) or 'tokens_b' (billions) for " +
                     "--axis " + arguments.axis + "; without tokens use --axis step");
  const auto phase = csv.find("phase");
  const SourceFilter filter(csv, arguments.source);
  Readings readings;
  std::map<HeadId, LastRow> last_rows;
  while (csv.next()) {
    if (!filter.admits(csv)) continue;
    ++readings.rows;
    const HeadId id = csv.head();
    const TrajectoryPoint point = {csv.count(step, std::numeric_limits<int64_t>::max()),
                                   csv.tokens(), csv.number(ratio)};
    if (std::isfinite(point.tokens))
      readings.most_tokens = std::max(readings.most_tokens, point.tokens);
    const size_t number = readings.phase_number(phase ? csv.text(*phase) : "");
    LastRow& last = last_rows[id];
    if (number < last.phase || (number == last.phase && point.step < last.step))
      readings.disorder.note(id, place_text(readings, last),
                             place_text(readings, {number, point.step}));
    last = {number, point.step};
    auto& points = readings.heads[id][number];
    if (std::isfinite(point.participation_ratio))
      points.push_back(point);
    else
      ++readings.skipped;
  }
  return readings;
}

bool same(const TrajectoryPoint& a, const TrajectoryPoint& b) {
  return a.participation_ratio == b.participation_ratio &&
         (a.tokens == b.tokens || (std::isnan(a.tokens) && std::isnan(b.tokens)));
}

std::string count_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.10g", value);
  return text;
}

/// Puts the rows of one phase in order; of several for one step the last one stays.
void put_in_order(std::vector<TrajectoryPoint>& points, Readings& readings) {
  std::stable_sort(points.begin(), points.end(),
                   [](const auto& a, const auto& b) { return a.step < b.step; });
  std::vector<TrajectoryPoint> kept;
  for (const auto& point : points) {
    if (!kept.empty() && kept.back().step == point.step) {
      if (!same(kept.back(), point)) ++readings.superseded;
      kept.back() = point;
    } else {
      kept.push_back(point);
    }
  }
  points = std::move(kept);
}

/// Tokens cannot be taken back while steps go on.
void check_tokens(const std::vector<TrajectoryPoint>& points, HeadId id, const std::string& file) {
  const TrajectoryPoint* last = nullptr;
  for (const auto& point : points) {
    if (!std::isfinite(point.tokens)) continue;
    if (last && point.tokens < last->tokens)
      throw InputError(file + ": the tokens of head " + std::to_string(id.layer) + "." +
                       std::to_string(id.head) + " go back from " + count_text(last->tokens) +
                       " at step " + std::to_string(last->step) + " to " +
                       count_text(point.tokens) + " at step " + std::to_string(point.step) +
                       "; name the parts of the run in a column 'phase', correct the tokens, or "
                       "use --axis step");
    last = &point;
  }
}

void note_return(Readings& readings, size_t after, HeadId head, double from, double to) {
  for (AxisReturn& known : readings.returns)
    if (known.after == after) {
      ++known.heads;
      return;
    }
  readings.returns.push_back({after, head, 1, from, to});
}

std::map<HeadId, Trajectory> trajectories(Readings& readings, const Trajectory& empty,
                                          const std::string& file) {
  const bool by_step = empty.definition().axis == IntegralAxis::kStep;
  std::map<HeadId, Trajectory> heads;
  for (auto& [id, phases] : readings.heads) {
    Trajectory& trajectory = heads.try_emplace(id, empty).first->second;
    double reached = kNaN;
    size_t reached_in = 0;
    for (auto& [phase, points] : phases) {
      put_in_order(points, readings);
      if (!by_step) check_tokens(points, id, file);
      bool begins = !trajectory.points().empty();
      for (auto point : points) {
        point.begins_stretch = std::exchange(begins, false);
        trajectory.add(point);
        if (!on_axis(empty.definition(), point)) {
          ++readings.off_axis;
          continue;
        }
        const double place = by_step ? static_cast<double>(point.step) : point.tokens;
        if (place < reached && phase != reached_in)
          note_return(readings, reached_in, id, reached, place);
        reached = place;
        reached_in = phase;
      }
    }
  }
  return heads;
}

/// Rows that go back in the file; those of a phase were put in order of step.
void state_disorder(ordered_json& stated, const Disorder& disorder) {
  if (disorder.rows == 0) return;
  stated["rows_go_back"] = {{"rows", disorder.rows},
                            {"heads", disorder.heads.size()},
                            {"first_head", {disorder.first_head.layer, disorder.first_head.head}},
                            {"from", disorder.from},
                            {"to", disorder.to}};
  stated["rows_note"] =
      "these rows lie before the one above them of their head; the rows of a phase were put in "
      "order of step, and of several for a step the last one counts; if a restart or new data "
      "begins there, name the parts of the run in a column 'phase'";
}

/// How the phases of the file were put together.
void state_phases(ordered_json& stated, const Readings& readings, const std::string& axis) {
  if (readings.phases.size() < 2) return;
  const std::string unit = axis == "step" ? "step" : "tokens";
  stated["phases"] = readings.phases;
  stated["phases_joined"] = readings.phases.size();
  stated["axis_goes_back"] = ordered_json::array();
  for (const auto& back : readings.returns)
    stated["axis_goes_back"].push_back({{"after_phase", readings.phases[back.after]},
                                        {"heads", back.heads},
                                        {"first_head", {back.head.layer, back.head.head}},
                                        {"from_" + unit, back.from},
                                        {"to_" + unit, back.to}});
  stated["phase_rule"] =
      "phases are integrated in order of appearance; where the axis goes on they are joined by a "
      "trapezoid, where it goes back the next one is integrated on its own and the sum goes on";
}

const char* formula(IntegralAxis axis) {
  switch (axis) {
    case IntegralAxis::kLnTokens:
      return "ln(max(tokens, floor_tokens))";
    case IntegralAxis::kLnTokensClamped1b:
      return "ln(max(tokens / 1e9, 1))";
    case IntegralAxis::kStep:
      break;
  }
  return "step";
}

}  // namespace

std::string rank(const RankArguments& arguments) {
  const IntegralDefinition definition = {integral_axis_from_string(arguments.axis),
                                         arguments.floor_tokens};
  const Trajectory empty(definition);  // refuses a definition that makes no sense before reading
  Readings readings = read(arguments, definition.axis != IntegralAxis::kStep);
  if (readings.rows == 0) throw InputError(arguments.file + ": no row to rank");
  const auto heads = trajectories(readings, empty, arguments.file);
  ordered_json answer;
  auto& stated = answer["definition"];
  stated = {{"integral", "trapezoid of max(participation_ratio - 1, 0) over x"},
            {"axis", arguments.axis},
            {"x", formula(definition.axis)}};
  if (definition.axis == IntegralAxis::kLnTokens) stated["floor_tokens"] = definition.floor_tokens;
  state_phases(stated, readings, arguments.axis);
  state_disorder(stated, readings.disorder);
  stated["heads"] = heads.size();
  stated["rows"] = readings.rows;
  stated["readings_skipped"] = readings.skipped;
  stated["readings_superseded"] = readings.superseded;
  stated["readings_off_axis"] = readings.off_axis;
  if (readings.off_axis > 0 && readings.off_axis == readings.rows - readings.skipped)
    stated["note"] =
        "no reading has a place on the axis, so every integral is 0; give tokens, or use --axis "
        "step";
  else if (definition.axis == IntegralAxis::kLnTokensClamped1b && readings.most_tokens <= 1e9)
    stated["note"] =
        "no reading lies beyond 1e9 tokens, so every integral is 0 by this definition; tokens are "
        "a count, not billions; try --axis ln_tokens";
  answer["heads"] = ordered_json::array();
  for (const auto& head : rank_by_integral(heads)) {
    if (arguments.top && head.rank > *arguments.top) break;
    answer["heads"].push_back({{"layer", head.id.layer},
                               {"head", head.id.head},
                               {"integral", head.features.integral},
                               {"final", head.features.final_value},
                               {"max", head.features.max},
                               {"min", head.features.min},
                               {"spread", head.features.spread},
                               {"rank", head.rank}});
  }
  return to_text(answer);
}

}  // namespace headscope::cli
