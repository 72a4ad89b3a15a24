#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "headscope/trajectory.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/input.h"
#include "plugin/cli/json_text.h"

namespace headscope::cli {
namespace {

/// Readings by head, and what became of the rows.
struct Readings {
  std::map<HeadId, std::vector<TrajectoryPoint>> heads;
  int64_t rows = 0;
  int64_t skipped = 0;     // PR empty or not finite
  int64_t superseded = 0;  // another row of the same head and step came later
  int64_t off_axis = 0;    // no place on the axis
  double most_tokens = 0;
};

Readings read(const RankArguments& arguments, bool needs_tokens) {
  Input input(arguments.file);
  CsvReader csv(input.stream(), input.name());
  const size_t layer = csv.require("layer"), head = csv.require("head"), step = csv.require("step"),
               ratio = csv.require("participation_ratio");
  const auto tokens = needs_tokens ? csv.require("tokens") : csv.find("tokens");
  const SourceFilter filter(csv, arguments.source);
  Readings readings;
  while (csv.next()) {
    if (!filter.admits(csv)) continue;
    ++readings.rows;
    const HeadId id = csv.head(layer, head);
    const TrajectoryPoint point = {csv.count(step, std::numeric_limits<int64_t>::max()),
                                   tokens ? csv.number(*tokens) : kNaN, csv.number(ratio)};
    if (point.tokens < 0) throw csv.error(*tokens, "is below 0");
    if (std::isfinite(point.tokens))
      readings.most_tokens = std::max(readings.most_tokens, point.tokens);
    auto& points = readings.heads[id];
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

std::map<HeadId, Trajectory> trajectories(Readings& readings, const Trajectory& empty) {
  std::map<HeadId, Trajectory> heads;
  for (auto& [id, points] : readings.heads) {
    std::stable_sort(points.begin(), points.end(),
                     [](const auto& a, const auto& b) { return a.step < b.step; });
    Trajectory& trajectory = heads.try_emplace(id, empty).first->second;
    for (size_t i = 0; i < points.size(); ++i) {
      if (i > 0 && points[i].step == points[i - 1].step && !same(points[i], points[i - 1]))
        ++readings.superseded;
      trajectory.add(points[i]);
    }
    for (const auto& point : trajectory.points())
      if (!on_axis(empty.definition(), point)) ++readings.off_axis;
  }
  return heads;
}

const char* formula(IntegralAxis axis) {
  switch (axis) {
    case IntegralAxis::kLnTokens:
      return "x = ln(max(tokens, floor_tokens))";
    case IntegralAxis::kLnTokensClamped1b:
      return "x = ln(max(tokens / 1e9, 1))";
    case IntegralAxis::kStep:
      break;
  }
  return "x = step";
}

}  // namespace

std::string rank(const RankArguments& arguments) {
  const IntegralDefinition definition = {integral_axis_from_string(arguments.axis),
                                         arguments.floor_tokens};
  const Trajectory empty(definition);  // refuses a definition that makes no sense before reading
  Readings readings = read(arguments, definition.axis != IntegralAxis::kStep);
  const auto heads = trajectories(readings, empty);
  ordered_json answer;
  auto& stated = answer["definition"];
  stated = {{"integral", "trapezoid of max(participation_ratio - 1, 0) over x"},
            {"axis", arguments.axis},
            {"x", formula(definition.axis)}};
  if (definition.axis == IntegralAxis::kLnTokens) stated["floor_tokens"] = definition.floor_tokens;
  stated["heads"] = heads.size();
  stated["rows"] = readings.rows;
  stated["readings_skipped"] = readings.skipped;
  stated["readings_superseded"] = readings.superseded;
  stated["readings_off_axis"] = readings.off_axis;
  if (definition.axis == IntegralAxis::kLnTokensClamped1b && readings.most_tokens <= 1e9)
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
