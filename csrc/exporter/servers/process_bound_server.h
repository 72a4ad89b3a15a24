#pragma once

#include <string>

#include "csrc/exporter/common/process_bound.h"
#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

class ProcessBoundServer : public ProcessBound<MetricsServer> {
 public:
  using ProcessBound::ProcessBound;
  std::string url() const override { return sink().url(); }
};

}  // namespace headscope::exporter
