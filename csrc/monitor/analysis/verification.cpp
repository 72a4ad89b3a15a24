#include "csrc/monitor/analysis/verification.h"

#include <stdexcept>
#include <utility>

namespace headscope {

void Verification::sit(std::vector<double> now) {
  std::vector<double>& first = trial.losses.baseline;
  own_.clear();
  if (first.empty()) {
    first = std::move(now);
    now_.clear();
    return;
  }
  if (now.size() != first.size()) throw std::runtime_error("a sitting of another batch");
  now_ = std::move(now);
}

bool Verification::wants_own() const {
  if (now_.empty() || !own_.empty()) return false;
  const auto next = trial.next();
  return next && next->kind == AblationTrial::Pass::Kind::kLabelSet;
}

void Verification::enter(std::vector<double> losses, const VerdictRule& rule) {
  const auto next = trial.next();
  const bool ranked = next && next->kind == AblationTrial::Pass::Kind::kLabelSet;
  const std::vector<double>& first = ranked ? trial.losses.ablated : trial.losses.baseline;
  const std::vector<double>& now = ranked ? own_ : now_;
  if (!now.empty() && losses.size() <= now.size())
    for (size_t i = 0; i < losses.size(); ++i) losses[i] = first[i] + (losses[i] - now[i]);
  trial.enter(std::move(losses), rule);
}

}  // namespace headscope
