#pragma once

#include <cstdint>

#include "headscope/snapshot.h"

namespace headscope {

/// When and of what a capture was taken.
struct CaptureInfo {
  int64_t step = 0;
  double tokens = kNaN;
  double wall_time = kNaN;
  double loss = kNaN;
  int64_t previous_probe_step = -1;
};

}  // namespace headscope
