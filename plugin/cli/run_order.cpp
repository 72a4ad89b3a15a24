#include "plugin/cli/run_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace headscope::cli {
namespace {

using Snapshots = std::vector<std::shared_ptr<const Snapshot>>;

/// Whether probes of several stretches lie between each other when they are in order of step.
bool interleaved(const Snapshots& by_step) {
  const Snapshot* last = nullptr;
  for (const auto& snapshot : by_step) {
    if (!is_probe(*snapshot)) continue;
    if (last && (snapshot->step == last->step || snapshot->tokens < last->tokens)) return true;
    last = snapshot.get();
  }
  return false;
}

bool timed(const Snapshots& snapshots) {
  return std::all_of(snapshots.begin(), snapshots.end(),
                     [](const auto& snapshot) { return std::isfinite(snapshot->wall_time); });
}

/// Numbers the stretches of snapshots that are in the order in which they were taken.
class Stretches {
 public:
  size_t next(const Snapshot& snapshot) {
    const bool again = is_probe(snapshot) && snapshot.step == last_probe_;
    if (snapshot.step < reached_ || again) {
      ++number_;
      reached_ = last_probe_ = -1;
    }
    reached_ = std::max(reached_, snapshot.step);
    if (is_probe(snapshot)) last_probe_ = snapshot.step;
    return number_;
  }

 private:
  size_t number_ = 0;
  int64_t reached_ = -1, last_probe_ = -1;
};

}  // namespace

bool is_probe(const Snapshot& snapshot) {
  return snapshot.source == Source::kProbe && !snapshot.heads.empty();
}

std::vector<PlacedSnapshot> in_order(const RunHistory& history) {
  Snapshots snapshots = history.snapshots;
  // The clock decides only where steps cannot: it may be set back.
  const bool by_time = interleaved(snapshots) && timed(snapshots);
  if (by_time)
    std::stable_sort(snapshots.begin(), snapshots.end(),
                     [](const auto& a, const auto& b) { return a->wall_time < b->wall_time; });
  Stretches stretches;
  std::vector<PlacedSnapshot> placed;
  for (auto& snapshot : snapshots) {
    const size_t stretch = by_time ? stretches.next(*snapshot) : 0;
    placed.push_back({std::move(snapshot), stretch});
  }
  return placed;
}

}  // namespace headscope::cli
