#pragma once

#include <cstdint>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::demo {

/// How well the model continues rows whose first half is repeated.
struct RepeatScore {
  double loss = kNaN;      ///< nats a token, second half
  double accuracy = kNaN;  ///< share of second-half tokens that are the most likely one
};

/// One process's part of a run that was resumed; the first begins at step 0.
struct Leg {
  double start_time = kNaN;   ///< seconds since the Unix epoch
  double seconds_before = 0;  ///< that the legs before it took
  int64_t first_step = 0;
};

/// What training came to.
struct TrainingResult {
  int64_t steps = 0;              ///< done; fewer than asked when interrupted
  double final_loss = kNaN;       ///< of the last training step, nats a token
  double validation_loss = kNaN;  ///< plain held-out text at the end, nats a token
  RepeatScore repeated_random;    ///< random tokens, repeated: nothing but induction helps
  RepeatScore repeated_text;      ///< held-out text, repeated
  uint64_t loss_hash = 0;         ///< FNV-1a over the bits of every step's loss, in order
  std::vector<Leg> legs;          ///< in order of time
  double seconds = 0;             ///< wall time of the loop in all legs, monitor included
  double step_seconds = 0;        ///< of which the training steps themselves took, taps included
  double monitor_seconds = 0;     ///< which the monitor took of the training thread
  bool interrupted = false;
};

}  // namespace headscope::demo
