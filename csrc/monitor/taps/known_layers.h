#pragma once

#include <atomic>
#include <cstdint>
#include <set>
#include <vector>

#include "csrc/monitor/edge/health.h"
#include "csrc/monitor/taps/capture.h"

namespace headscope {

/// The layers that have reported. Thread: training; count() may be called from any.
class KnownLayers {
 public:
  int64_t count() const { return count_.load(); }
  /// What is said of a measurement.
  struct Words {
    const char* where;       ///< "did not report during ..."
    const char* silent_key;  ///< under which it is said once
    const char* silent;      ///< when no layer has ever reported
  };
  /// Counts and names the layers that are missing from a capture, and learns those that are new;
  /// false when none reported.
  bool reported(const Capture& taken, const Words& words, HealthCounters& health, FaultGate& gate);

  std::vector<int64_t> save() const { return {known_.begin(), known_.end()}; }
  void restore(const std::vector<int64_t>& layers);

 private:
  std::set<int64_t> known_;
  std::atomic<int64_t> count_{0};
};

}  // namespace headscope
