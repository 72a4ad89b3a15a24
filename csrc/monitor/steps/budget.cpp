#include "csrc/monitor/steps/budget.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace headscope {
namespace {

// Weight of the newest cost in the mean: a probe that has become dearer is known after a few.
constexpr double kNewest = 0.3;
// A window is kept in so many parts: costs closer together are one entry.
constexpr double kParts = 600;
// Longer than any window in use: a probe of a minute under a share of a thousandth.
constexpr double kLongestSeconds = 1e5;

double limit_of(Budget::Work work) {
  switch (work) {
    case Budget::Work::kTrain:
      return 0.25;
    case Budget::Work::kProbe:
      return 0.75;
    case Budget::Work::kVerify:
      return 0.375;
  }
  return 0;
}

/// What counts against a work's limit.
bool shares_limit(Budget::Work limited, Budget::Work entry) {
  return entry == limited || (limited == Budget::Work::kProbe && entry == Budget::Work::kVerify);
}

void blend(double& mean, double value) {
  mean = mean > 0 ? mean + kNewest * (value - mean) : value;
}

}  // namespace

Budget::Budget(double share, std::function<double()> clock)
    : share_(share), clock_(std::move(clock)) {}

double Budget::expected(Work work) const {
  return mean_[static_cast<size_t>(work)] + (work == Work::kProbe ? aside_ : 0);
}

double Budget::spent_since(double start, Work work) const {
  double sum = 0;
  for (const Entry& entry : entries_) {
    if (entry.time > start && shares_limit(work, entry.work)) sum += entry.seconds;
  }
  return sum;
}

bool Budget::allows(Work work, double pieces) const {
  if (!bounded()) return true;
  const double cost = pieces * expected(work);
  if (cost <= 0) return true;
  const double share = share_ * limit_of(work);
  const double window = window_of(work, cost);
  const double end = clock_();
  if (spent_since(end - window, work) + cost > share * window) return false;
  // A verification is also part of what it shares with the probes.
  if (work != Work::kVerify) return true;
  const double both = share_ * limit_of(Work::kProbe);
  return spent_since(end - window, Work::kProbe) + cost <= both * window;
}

double Budget::window_of(Work work, double cost) const {
  return std::clamp(cost / (share_ * limit_of(work)), kWindowSeconds, kLongestSeconds);
}

void Budget::enter(Work work, double seconds) {
  const double time = clock_();
  double longest = kWindowSeconds;
  for (const Work kept : {Work::kTrain, Work::kProbe, Work::kVerify})
    longest = std::max(longest, window_of(kept, 2 * expected(kept)));
  std::erase_if(entries_, [&](const Entry& entry) {
    // Also what lies in the future: the clock was set back.
    return entry.time <= time - longest || entry.time > time;
  });
  for (auto entry = entries_.rbegin(); entry != entries_.rend(); ++entry) {
    if (entry->time < time - longest / kParts) break;
    if (entry->work != work) continue;
    entry->seconds += seconds;
    return;
  }
  entries_.push_back({time, seconds, work});
}

void Budget::spent(Work work, double seconds, double pieces) {
  if (!bounded() || !(seconds >= 0)) return;
  if (pieces > 0) blend(mean_[static_cast<size_t>(work)], seconds / pieces);
  enter(work, seconds);
}

void Budget::spent_aside(double seconds) {
  if (!bounded() || !(seconds >= 0)) return;
  blend(aside_, seconds);
  enter(Work::kProbe, seconds);
}

double Budget::used_ratio() const {
  if (!bounded()) return 0;
  double sum = 0;
  const double start = clock_() - kWindowSeconds;
  for (const Entry& entry : entries_) sum += entry.time > start ? entry.seconds : 0;
  return sum / (share_ * kWindowSeconds);
}

std::vector<double> Budget::save() const {
  std::vector<double> state(mean_.begin(), mean_.end());
  state.push_back(aside_);
  if (!bounded()) return state;
  const double time = clock_();
  for (const Entry& entry : entries_) {
    state.insert(state.end(), {time - entry.time, entry.seconds, static_cast<double>(entry.work)});
  }
  return state;
}

void Budget::restore(const std::vector<double>& state) {
  const size_t fixed = kWorks + 1;
  if (state.size() < fixed || (state.size() - fixed) % 3 != 0)
    throw std::runtime_error("headscope: the state's budget has " + std::to_string(state.size()) +
                             " numbers");
  std::copy_n(state.begin(), kWorks, mean_.begin());
  aside_ = state[kWorks];
  entries_.clear();
  if (!bounded()) return;
  const double time = clock_();
  for (size_t i = fixed; i < state.size(); i += 3) {
    const double work = state[i + 2];
    if (!(work >= 0 && work < kWorks))
      throw std::runtime_error("headscope: the state's budget is damaged");
    entries_.push_back({time - state[i], state[i + 1], static_cast<Work>(static_cast<int>(work))});
  }
}

}  // namespace headscope
