#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/system/cpu_time.h"

namespace headscope::bench {

/// One row of the goals' table. `measured` NaN: not measured here, `note` says why.
struct Row {
  std::string id;
  std::string name;
  double must = std::numeric_limits<double>::quiet_NaN();
  double aim = std::numeric_limits<double>::quiet_NaN();
  double measured = std::numeric_limits<double>::quiet_NaN();
  bool smaller_is_better = false;
  std::string unit = {};  ///< of must, aim and measured: "x", "us", "relative error"
  double spread =
      std::numeric_limits<double>::quiet_NaN();  ///< max / min of our repetitions, minus 1
  std::string roof = {};  ///< baseline or roof that the figure is relative to, in words and numbers
  std::string note = {};

  bool is_measured() const { return std::isfinite(measured); }
  bool meets(double bound) const {
    return smaller_is_better ? measured <= bound : measured >= bound;
  }
};

/// Best of `repetitions` for every candidate, interleaved in one process after a warm-up of each;
/// seconds of wall time. Each is called `in_a_row` times when its turn comes.
struct Timing {
  double best = 0;
  double spread = 0;
};
std::vector<Timing> time_interleaved(const std::vector<std::function<void()>>& candidates,
                                     int repetitions = 7, size_t in_a_row = 1);

double wall_seconds();
using testing::process_cpu_seconds;
using testing::thread_cpu_seconds;

/// Takes each row as soon as it is measured: some take a minute.
using Emit = std::function<void(const Row&)>;
void gram_rows(const Emit& emit);
void eigenvalue_rows(const Emit& emit);
void attention_rows(const Emit& emit);
void monitor_rows(const Emit& emit);
void cost_rows(const Emit& emit);
void server_rows(const Emit& emit);
/// Rows that need what this build or machine does not have.
void unmeasured_rows(const Emit& emit);

}  // namespace headscope::bench
