#pragma once

#include <unistd.h>

#include <memory>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"

namespace headscope::testing {

/// A server on a port that is free.
inline std::shared_ptr<MetricsServer> start_server(ServerOptions options = {}) {
  options.port = 0;
  return start_metrics_server(options);
}

/// A port that is free, for servers that come back to it: below those that Linux deals out to
/// outgoing connections, one of which could take it in between.
inline int port_to_come_back_to() {
  ServerOptions options;
  options.port = 10000 + getpid() % 20000;
  return port_of(start_metrics_server(options)->url());
}

}  // namespace headscope::testing
