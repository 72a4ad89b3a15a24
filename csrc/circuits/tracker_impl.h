#pragma once

#include <optional>
#include <vector>

#include "csrc/circuits/circuit_state.h"

namespace headscope {

/// The tracker's working parts: transitions.cpp moves the state, circuit_tracker.cpp answers.
struct CircuitTracker::Impl {
  circuits::TrackerSetup setup;
  circuits::TrackerState state;

  /// Throws std::invalid_argument when a probe does not fit.
  void check(const ProbeEvidence& probe) const;
  /// Takes a probe that fits.
  std::vector<Event> take(const ProbeEvidence& probe);
  /// Heads of a circuit in one state, ascending.
  std::vector<HeadId> heads_in(const circuits::CircuitLife& circuit, CircuitState wanted) const;
  /// The heads that a circuit consists of in its present state.
  std::vector<HeadId> members(const circuits::CircuitLife& circuit) const;

 private:
  /// What one probe changed in one pattern.
  struct Changes {
    circuits::Moment emerging, formed;  ///< earliest first probe of the heads that entered
    std::vector<size_t> lost, faded;    ///< heads that left, by number
    bool all_converted = true;          ///< of the lost ones
  };

  void begin(const ProbeEvidence& probe);
  void enter(const ProbeEvidence& probe, size_t pattern,
             const std::vector<circuits::HeadEvidence>& evidence, Changes& changes,
             std::vector<Event>& events);
  void leave(const ProbeEvidence& probe, size_t pattern,
             const std::vector<circuits::HeadEvidence>& evidence, Changes& changes,
             std::vector<Event>& events);
  void settle(const ProbeEvidence& probe, size_t pattern, const Changes& changes,
              std::vector<Event>& events);
  /// Dates the last change of a circuit's formed heads.
  void note_heads(circuits::CircuitLife& circuit);
  /// A circuit most of whose heads were not in its verdict is formed again.
  void reopen(const ProbeEvidence& probe, size_t pattern, const std::vector<size_t>& formed,
              std::vector<Event>& events);
  /// An event about `heads` (by number), with the figures of the most selective.
  Event event_of(const ProbeEvidence& probe, size_t pattern, CircuitState entered,
                 const std::vector<size_t>& heads, const circuits::Moment& first) const;
  /// Turns a loss into a conversion when the head is formed in another pattern; false when it is
  /// not.
  bool convert(const ProbeEvidence& probe, size_t pattern, size_t head, Event& event) const;
  std::vector<size_t> numbers_in(const circuits::CircuitLife& circuit, CircuitState wanted) const;
};

}  // namespace headscope
