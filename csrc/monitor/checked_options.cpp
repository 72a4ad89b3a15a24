#include "csrc/monitor/checked_options.h"

#include <chrono>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <string>

#include "csrc/measure/process_check.h"

namespace headscope {
namespace {

void log_to_stderr(LogLevel, const std::string& line) {
  std::fprintf(stderr, "[headscope] %s\n", line.c_str());
}

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Options checked_options(Options options) {
  measure::check_process();
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("headscope options: " + what);
  };
  if (options.schedule.train_every < 0) {
    refuse("schedule.train_every must not be negative, got " +
           std::to_string(options.schedule.train_every));
  }
  if (options.schedule.longest_probe_gap < 1 || options.schedule.shortest_probe_gap < 1 ||
      options.schedule.shortest_probe_gap > options.schedule.longest_probe_gap) {
    refuse("1 <= schedule.shortest_probe_gap <= schedule.longest_probe_gap is needed, got " +
           std::to_string(options.schedule.shortest_probe_gap) + " and " +
           std::to_string(options.schedule.longest_probe_gap));
  }
  if (options.sampled_rows < 1 || options.sampled_rows > 16) {
    refuse("sampled_rows must lie in 1..16, got " + std::to_string(options.sampled_rows));
  }
  if (options.port < 0 || options.port > 65535) {
    refuse("port must lie in 0..65535, got " + std::to_string(options.port));
  }
  if (options.sink_queue < 1) refuse("sink_queue must be at least 1");
  const auto require = [&](bool good, const char* name, double value, const char* range) {
    if (!good) refuse(std::string(name) + " must be " + range + ", got " + std::to_string(value));
  };
  require(options.schedule.probes_per_octave >= 0, "schedule.probes_per_octave",
          options.schedule.probes_per_octave, "0 (no probes) or more");
  require(options.integral.floor_tokens > 0 && std::isfinite(options.integral.floor_tokens),
          "integral.floor_tokens", options.integral.floor_tokens, "finite and above 0");
  require(options.controls.wanted >= 1, "controls.wanted",
          static_cast<double>(options.controls.wanted), "at least 1");
  require(options.verdict.confidence > 0 && options.verdict.confidence < 1, "verdict.confidence",
          options.verdict.confidence, "above 0 and below 1");
  require(options.verdict.resamples >= 1, "verdict.resamples",
          static_cast<double>(options.verdict.resamples), "at least 1");
  require(options.verdict.min_ratio > 0, "verdict.min_ratio", options.verdict.min_ratio, "above 0");
  require(options.verdict.smallest_effect >= 0, "verdict.smallest_effect",
          options.verdict.smallest_effect, "0 or more");
  require(options.verdict.level > 0 && options.verdict.level < 1, "verdict.level",
          options.verdict.level, "above 0 and below 1");
  require(options.verdict.most_label_sets >= 1, "verdict.most_label_sets",
          static_cast<double>(options.verdict.most_label_sets), "at least 1");
  require(options.verdict.labelled_examples >= 1, "verdict.labelled_examples",
          static_cast<double>(options.verdict.labelled_examples), "at least 1");
  require(options.schedule.budget >= 0 && options.schedule.budget <= 1, "schedule.budget",
          options.schedule.budget, "a share from 0 (no bound) to 1");
  if (!options.log) options.log = log_to_stderr;
  if (!options.clock) options.clock = monotonic_seconds;
  return options;
}

}  // namespace headscope
