#pragma once

#include <cstdint>

#include "headscope/snapshot.h"

namespace headscope::demo {

/// How well the model continues rows whose first half is repeated.
struct RepeatScore {
  double loss = kNaN;      ///< nats a token, second half
  double accuracy = kNaN;  ///< share of second-half tokens that are the most likely one
};

/// What training came to.
struct TrainingResult {
  int64_t steps = 0;              ///< done; fewer than asked when interrupted
  double final_loss = kNaN;       ///< of the last training step, nats a token
  double validation_loss = kNaN;  ///< plain held-out text at the end, nats a token
  RepeatScore repeated_random;    ///< random tokens, repeated: nothing but induction helps
  RepeatScore repeated_text;      ///< held-out text, repeated
  uint64_t loss_hash = 0;         ///< FNV-1a over the bits of every step's loss, in order
  double start_time = kNaN;       ///< seconds since the Unix epoch
  double seconds = 0;             ///< wall time of the loop, monitor included
  double step_seconds = 0;        ///< of which the training steps themselves took, taps included
  bool interrupted = false;
};

}  // namespace headscope::demo
