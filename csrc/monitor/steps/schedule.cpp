#include "csrc/monitor/steps/schedule.h"

#include <cmath>

namespace headscope {

bool Scheduler::probe_due(int64_t step, double tokens) const {
  if (!(schedule_.probes_per_octave > 0)) return false;
  if (state_.last_probe_step < 0) return true;
  const int64_t gap = step - state_.last_probe_step;
  if (gap < 0) return true;  // the counter began anew: a second data phase
  if (gap < schedule_.shortest_probe_gap) return false;
  if (gap >= schedule_.longest_probe_gap) return true;
  const bool told = std::isfinite(tokens) && std::isfinite(state_.last_probe_tokens);
  const double last = told ? state_.last_probe_tokens : static_cast<double>(state_.last_probe_step);
  const double now = told ? tokens : static_cast<double>(step);
  return last <= 0 ? now > 0 : now >= last * std::exp2(1.0 / schedule_.probes_per_octave);
}

}  // namespace headscope
