#include "tests/bench/runner.h"

#include <algorithm>
#include <chrono>

namespace headscope::bench {

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::vector<Timing> time_interleaved(const std::vector<std::function<void()>>& candidates,
                                     int repetitions, size_t in_a_row) {
  std::vector<double> best(candidates.size(), std::numeric_limits<double>::infinity()),
      worst(candidates.size(), 0);
  for (const auto& candidate : candidates) candidate();
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (size_t call = 0; call < candidates.size() * in_a_row; ++call) {
      const size_t i = call / in_a_row;
      const double start = wall_seconds();
      candidates[i]();
      const double seconds = wall_seconds() - start;
      best[i] = std::min(best[i], seconds);
      worst[i] = std::max(worst[i], seconds);
    }
  }
  std::vector<Timing> timings;
  for (size_t i = 0; i < candidates.size(); ++i)
    timings.push_back({best[i], worst[i] / best[i] - 1});
  return timings;
}

void unmeasured_rows(const Emit& emit) {
  const auto row = [](const char* id, const char* name, const char* note) {
    Row row;
    row.id = id;
    row.name = name;
    row.note = note;
    return row;
  };
  emit(row("15-19", "GPU rows", "no GPU at hand; tests/gpu/run.sh measures them"));
}

}  // namespace headscope::bench
