#pragma once

#include <memory>

#include "headscope/sinks.h"

namespace headscope::testing {

/// A server on a port that is free.
inline std::shared_ptr<MetricsServer> start_server(ServerOptions options = {}) {
  options.port = 0;
  return start_metrics_server(options);
}

}  // namespace headscope::testing
