#include "csrc/monitor/analysis/verification.h"

#include <stdexcept>
#include <utility>

namespace headscope {

void Verification::sit(std::vector<double> now) {
  std::vector<double>& first = trial.losses.baseline;
  if (first.empty()) {
    first = std::move(now);
    now_.clear();
    return;
  }
  if (now.size() != first.size()) throw std::runtime_error("a sitting of another batch");
  now_ = std::move(now);
}

void Verification::enter(std::vector<double> losses, const VerdictRule& rule) {
  const std::vector<double>& first = trial.losses.baseline;
  if (!now_.empty() && losses.size() <= now_.size())
    for (size_t i = 0; i < losses.size(); ++i) losses[i] = first[i] + (losses[i] - now_[i]);
  trial.enter(std::move(losses), rule);
}

}  // namespace headscope
