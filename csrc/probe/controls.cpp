#include <algorithm>
#include <set>

#include "headscope/probe_batch.h"
#include "headscope/random_state.h"

namespace headscope {

const char* to_string(ControlPositions controls) {
  switch (controls) {
    case ControlPositions::kMeasuredWithoutSpecial:
      return "measured_without_special";
    case ControlPositions::kMeasuredAll:
      return "measured_all";
    case ControlPositions::kReference50:
      return "reference_50";
    case ControlPositions::kAnalytic:
      return "analytic";
  }
  return "unknown";
}

std::vector<int64_t> reference_control_positions(int64_t context) {
  const auto rejected = [&](int64_t t) {
    return t == 0 || t == context - 1 || (t <= context - 2 && t >= context - 6);
  };
  int64_t available = 0;
  for (int64_t t = 1; t < context - 1; ++t) available += rejected(t) ? 0 : 1;
  RandomState random(0);
  std::vector<int64_t> positions;
  std::set<int64_t> taken;
  while (static_cast<int64_t>(positions.size()) < std::min<int64_t>(50, available)) {
    const int64_t t = random.integer(1, context - 1);
    if (rejected(t) || !taken.insert(t).second) continue;
    positions.push_back(t);
  }
  return positions;
}

}  // namespace headscope
