#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <utility>

#include "headscope/built_in_sinks.h"
#include "headscope/snapshot.h"

namespace headscope {

/// What can go wrong at the edge to the host; names are the `kind` label of headscope_errors_total.
enum class Fault : uint8_t {
  kTap,
  kProbe,
  kAblation,
  kSelfCheck,
  kAnalysis,
  kSink,
  kHistory,
  kServer,
  kCallback,
  kState
};
inline constexpr size_t kFaults = 10;
const char* to_string(Fault fault);

/// Counters shared by all threads of one monitor. Wait-free to read and to write.
struct HealthCounters {
  std::array<std::atomic<uint64_t>, kFaults> errors{};
  std::atomic<uint64_t> taps{0}, taps_missing{0}, taps_skipped{0}, snapshots_dropped{0},
      nonfinite_readings{0}, probes{0}, measured_steps{0}, deferred{0};
  std::atomic<double> budget_ratio{0}, budget_used_ratio{0};
  std::atomic<uint64_t> tap_nanoseconds{0}, probe_nanoseconds{0}, ablation_nanoseconds{0},
      wait_nanoseconds{0}, analysis_nanoseconds{0}, analysis_cpu_nanoseconds{0};
  Health read() const;
};

/// Adds the time of its scope to a counter.
class ScopedTimer {
 public:
  explicit ScopedTimer(std::atomic<uint64_t>& counter);
  ~ScopedTimer();
  ScopedTimer(const ScopedTimer&) = delete;
  ScopedTimer& operator=(const ScopedTimer&) = delete;

 private:
  std::atomic<uint64_t>& counter_;
  int64_t start_;
};

/// The same on the analysis thread, with its CPU time beside the wall time.
class AnalysisTimer {
 public:
  explicit AnalysisTimer(HealthCounters& health);
  ~AnalysisTimer();
  AnalysisTimer(const AnalysisTimer&) = delete;
  AnalysisTimer& operator=(const AnalysisTimer&) = delete;

 private:
  HealthCounters& health_;
  ScopedTimer wall_;
  double cpu_start_;
};

/// The edge at which every failure stops: caught, counted, logged once a kind. Never throws, from
/// any thread.
class FaultGate {
 public:
  FaultGate(LogFunction log, HealthCounters& health) : log_(std::move(log)), health_(health) {}

  /// Runs work; false when it threw.
  template <typename Work>
  bool guarded(Fault fault, Work&& work) noexcept {
    try {
      work();
      return true;
    } catch (const std::exception& error) {
      report(fault, error.what());
    } catch (...) {
      report(fault, "an exception that is not a std::exception");
    }
    return false;
  }
  /// Counts a fault; logs the first of its kind.
  void report(Fault fault, const char* what) noexcept;
  /// Writes a log line; the first time for a `once` key, always for an empty one.
  void log(LogLevel level, const std::string& line, const std::string& once = "") noexcept;

 private:
  LogFunction log_;
  HealthCounters& health_;
  std::mutex mutex_;
  std::map<std::string, bool> logged_;
};

/// Pauses one measurement after a fault: 1, 2, 4 .. 64 chances are skipped, and a success starts
/// again from 1.
class Backoff {
 public:
  /// Asked once per chance; false while paused.
  bool ready() {
    if (skip_ == 0) return true;
    --skip_;
    return false;
  }
  void failed() {
    skip_ = length_;
    length_ = std::min<int64_t>(2 * length_, 64);
  }
  void succeeded() { length_ = 1; }
  std::pair<int64_t, int64_t> save() const { return {skip_, length_}; }
  void restore(int64_t skip, int64_t length) {
    skip_ = std::clamp<int64_t>(skip, 0, 64);
    length_ = std::clamp<int64_t>(length, 1, 64);
  }

 private:
  int64_t skip_ = 0;
  int64_t length_ = 1;
};

}  // namespace headscope
