#include "csrc/monitor/edge/health.h"

#include <chrono>
#include <ctime>

namespace headscope {
namespace {

int64_t now_nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double seconds(const std::atomic<uint64_t>& nanoseconds) {
  return 1e-9 * static_cast<double>(nanoseconds.load(std::memory_order_relaxed));
}

double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

}  // namespace

const char* to_string(Fault fault) {
  static constexpr const char* kNames[kFaults] = {"tap",      "probe", "ablation", "self_check",
                                                  "analysis", "sink",  "history",  "server",
                                                  "callback", "state"};
  return kNames[static_cast<size_t>(fault)];
}

Health HealthCounters::read() const {
  const auto count = [](const std::atomic<uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  Health health;
  for (size_t i = 0; i < kFaults; ++i)
    health.errors[to_string(static_cast<Fault>(i))] = count(errors[i]);
  health.taps = count(taps);
  health.taps_missing = count(taps_missing);
  health.taps_skipped = count(taps_skipped);
  health.snapshots_dropped = count(snapshots_dropped);
  health.nonfinite_readings = count(nonfinite_readings);
  health.probes = count(probes);
  health.measured_steps = count(measured_steps);
  health.deferred = count(deferred);
  health.budget_ratio = budget_ratio.load(std::memory_order_relaxed);
  health.budget_used_ratio = budget_used_ratio.load(std::memory_order_relaxed);
  health.tap_seconds = seconds(tap_nanoseconds);
  health.probe_seconds = seconds(probe_nanoseconds);
  health.ablation_seconds = seconds(ablation_nanoseconds);
  health.wait_seconds = seconds(wait_nanoseconds);
  health.analysis_seconds = seconds(analysis_nanoseconds);
  return health;
}

ScopedTimer::ScopedTimer(std::atomic<uint64_t>& counter)
    : counter_(counter), start_(now_nanoseconds()) {}

ScopedTimer::~ScopedTimer() {
  counter_.fetch_add(static_cast<uint64_t>(now_nanoseconds() - start_), std::memory_order_relaxed);
}

AnalysisTimer::AnalysisTimer(HealthCounters& health)
    : health_(health), wall_(health.analysis_nanoseconds), cpu_start_(thread_cpu_seconds()) {}

AnalysisTimer::~AnalysisTimer() {
  health_.analysis_cpu_nanoseconds.fetch_add(
      static_cast<uint64_t>(1e9 * (thread_cpu_seconds() - cpu_start_)), std::memory_order_relaxed);
}

void FaultGate::report(Fault fault, const char* what) noexcept {
  health_.errors[static_cast<size_t>(fault)].fetch_add(1, std::memory_order_relaxed);
  try {
    // c10 errors carry a backtrace after the first line; the message is what a user can act on.
    const std::string_view text(what), line = text.substr(0, text.find('\n'));
    log(LogLevel::kWarning,
        std::string(to_string(fault)) +
            " failed, training goes on without this measurement: " + std::string(line) +
            " (further errors of this kind are counted in headscope_errors_total{kind=\"" +
            to_string(fault) + "\"})",
        to_string(fault));
  } catch (...) {
    // Out of memory while reporting: the count above is the report.
  }
}

void FaultGate::log(LogLevel level, const std::string& line, const std::string& once) noexcept {
  try {
    if (!once.empty()) {
      const std::scoped_lock lock(mutex_);
      if (!logged_.emplace(once, true).second) return;
    }
    if (log_) log_(level, line);
  } catch (...) {
    // A log function that throws must not reach the host; there is nowhere left to say so.
  }
}

}  // namespace headscope
