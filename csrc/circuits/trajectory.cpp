#include "headscope/trajectory.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace headscope {
namespace {

constexpr double kReferenceUnit = 1e9;  // the reference code counts tokens in billions

/// Place of a reading on the axis, NaN where it has none.
double axis_value(const IntegralDefinition& definition, const TrajectoryPoint& point) {
  switch (definition.axis) {
    case IntegralAxis::kStep:
      return static_cast<double>(point.step);
    case IntegralAxis::kLnTokensClamped1b:
      if (!std::isfinite(point.tokens)) return kNaN;
      return std::log(std::max(point.tokens / kReferenceUnit, 1.0));
    case IntegralAxis::kLnTokens:
      if (!std::isfinite(point.tokens) || point.tokens <= 0) return kNaN;
      return std::log(std::max(point.tokens, definition.floor_tokens));
  }
  return kNaN;
}

double excess(double participation_ratio) { return std::max(participation_ratio - 1, 0.0); }

}  // namespace

const char* to_string(IntegralAxis axis) {
  switch (axis) {
    case IntegralAxis::kLnTokens:
      return "ln_tokens";
    case IntegralAxis::kLnTokensClamped1b:
      return "ln_tokens_clamped_1b";
    case IntegralAxis::kStep:
      return "step";
  }
  return "unknown";
}

IntegralAxis integral_axis_from_string(const std::string& name) {
  for (const auto axis :
       {IntegralAxis::kLnTokens, IntegralAxis::kLnTokensClamped1b, IntegralAxis::kStep})
    if (name == to_string(axis)) return axis;
  throw std::invalid_argument("unknown integral axis '" + name +
                              "'; choose ln_tokens, ln_tokens_clamped_1b or step");
}

bool on_axis(const IntegralDefinition& definition, const TrajectoryPoint& point) {
  return !std::isnan(axis_value(definition, point));
}

Trajectory::Trajectory(IntegralDefinition definition) : definition_(definition) {
  if (!(definition.floor_tokens > 0) || !std::isfinite(definition.floor_tokens))
    throw std::invalid_argument("floor_tokens is " + std::to_string(definition.floor_tokens) +
                                "; give a finite count above 0");
}

bool Trajectory::add(const TrajectoryPoint& point) {
  if (!std::isfinite(point.participation_ratio)) return false;
  TrajectoryPoint added = point;
  if (!points_.empty() && !point.begins_stretch && point.step <= points_.back().step) {
    const auto last_begin = std::find_if(points_.rbegin(), points_.rend(),
                                         [](const auto& p) { return p.begins_stretch; });
    const auto stretch = last_begin == points_.rend() ? points_.begin() : last_begin.base() - 1;
    const auto superseded =
        std::lower_bound(stretch, points_.end(), point.step,
                         [](const TrajectoryPoint& p, int64_t step) { return p.step < step; });
    added.begins_stretch = superseded->begins_stretch;
    std::vector<TrajectoryPoint> kept(points_.begin(), superseded);
    points_.clear();
    integral_ = 0;
    last_on_axis_.reset();
    for (const auto& p : kept) append(p);
  }
  append(added);
  return true;
}

void Trajectory::append(const TrajectoryPoint& point) {
  points_.push_back(point);
  const double x = axis_value(definition_, point);
  if (std::isnan(x)) return;
  const double height = excess(point.participation_ratio);
  if (last_on_axis_ && x > last_on_axis_->first)
    integral_ += (x - last_on_axis_->first) * (height + last_on_axis_->second) / 2;
  last_on_axis_ = {x, height};
}

TrajectoryFeatures Trajectory::features() const {
  TrajectoryFeatures features;
  features.integral = integral_;
  if (points_.empty()) return features;
  features.final_value = points_.back().participation_ratio;
  features.max = features.min = points_.front().participation_ratio;
  for (const auto& point : points_) {
    features.max = std::max(features.max, point.participation_ratio);
    features.min = std::min(features.min, point.participation_ratio);
  }
  features.spread = features.max - features.min;
  return features;
}

std::vector<RankedHead> rank_by_integral(const std::map<HeadId, Trajectory>& heads) {
  std::vector<RankedHead> ranked;
  ranked.reserve(heads.size());
  for (const auto& [id, trajectory] : heads) ranked.push_back({id, trajectory.features(), 0});
  // The map is in order of id, so a stable sort breaks ties by it.
  std::stable_sort(ranked.begin(), ranked.end(), [](const RankedHead& a, const RankedHead& b) {
    return a.features.integral > b.features.integral;
  });
  for (size_t i = 0; i < ranked.size(); ++i) ranked[i].rank = static_cast<int64_t>(i) + 1;
  return ranked;
}

}  // namespace headscope
