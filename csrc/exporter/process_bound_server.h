#pragma once

#include <string>

#include "csrc/exporter/process_bound.h"
#include "headscope/sinks.h"

namespace headscope::exporter {

class ProcessBoundServer : public ProcessBound<MetricsServer> {
 public:
  using ProcessBound::ProcessBound;
  std::string url() const override { return sink().url(); }
};

}  // namespace headscope::exporter
