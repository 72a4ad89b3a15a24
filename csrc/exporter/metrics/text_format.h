#pragma once

#include <prometheus/collectable.h>

#include <string>

namespace headscope::exporter {

/// Prometheus text format 0.0.4 of counters and gauges: byte for byte what prometheus-cpp writes,
/// at less than half the cost.
std::string serialise(const prometheus::Collectable& metrics);

}  // namespace headscope::exporter
