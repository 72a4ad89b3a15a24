#pragma once

#include <functional>
#include <memory>
#include <string>

#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// make_progress_line with a clock of the caller's: seconds, monotonic.
std::shared_ptr<Sink> make_progress_line(const ProgressOptions& options,
                                         std::function<double()> clock);

/// e.g. "step 625  induction emerging: head 1.4 (margin z 4.1)". Printable ASCII only.
std::string event_line(const Event& event);

}  // namespace headscope::exporter
