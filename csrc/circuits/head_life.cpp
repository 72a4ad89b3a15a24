#include "csrc/circuits/circuit_state.h"

namespace headscope::circuits {

using enum CircuitState;

std::vector<HeadLife::Change> HeadLife::enter(const HeadEvidence& evidence, const Moment& now,
                                              int64_t in_a_row) {
  if (evidence.emerging != Answer::kUnknown) denied = evidence.emerging == Answer::kNo;
  if (state == kFormed) return {};
  std::vector<Change> changes;
  forming.count(denied && evidence.formed == Answer::kYes ? Answer::kNo : evidence.formed, now);
  if (state != kEmerging) {
    rising.count(evidence.emerging, now);
    if (rising.length >= in_a_row) {
      changes.push_back({kEmerging, rising.first});
      state = kEmerging;
      rising = fading = {};
    }
  }
  if (forming.length >= in_a_row) {
    changes.push_back({kFormed, forming.first});
    state = kFormed;
    formed = forming.first;
    break_streaks();
  }
  return changes;
}

std::vector<HeadLife::Change> HeadLife::leave(const HeadEvidence& evidence, const Moment& now,
                                              int64_t in_a_row) {
  if (state != kEmerging && state != kFormed) return {};
  Streak& streak = state == kFormed ? leaving : fading;
  streak.count(state == kFormed ? evidence.left : negated(evidence.emerging), now);
  if (streak.length < in_a_row) return {};
  const Change change{state == kFormed ? kLost : kDormant, streak.first};
  if (state == kFormed)
    break_streaks();
  else
    fading = {};  // a run of readings above the threshold goes on
  state = change.state;
  return {change};
}

}  // namespace headscope::circuits
