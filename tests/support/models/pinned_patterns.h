#pragma once

#include <vector>

#include "headscope/patterns.h"

namespace headscope::testing {

/// The standard patterns that tests write positions and counts out for, induction to local,
/// whatever becomes standard behind them.
inline std::vector<Pattern> pinned_patterns() {
  std::vector<Pattern> patterns = standard_patterns();
  patterns.resize(6);
  return patterns;
}

}  // namespace headscope::testing
