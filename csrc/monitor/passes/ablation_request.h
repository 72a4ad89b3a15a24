#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "csrc/monitor/passes/behaviour.h"
#include "csrc/monitor/passes/probe_setup.h"
#include "headscope/ablation_runner.h"

namespace headscope {

/// What a request is run on.
struct RequestedBatch {
  AblationBatch batch;        ///< distinct rows
  std::vector<int64_t> rows;  ///< which of the request's they are
};

/// Checks a request and makes its batch. Throws std::invalid_argument naming value and fix.
RequestedBatch requested_batch(const AblationRequest& request, const ProbeSetup& probe);

/// Throws std::invalid_argument when one of the heads does not exist, naming those that do.
void check_heads(const std::vector<HeadId>& heads, const std::map<int64_t, int64_t>& heads_in);

/// The number of a pattern; throws std::invalid_argument naming those that there are.
size_t pattern_number(const std::string& name, const std::vector<Pattern>& patterns);

/// "planted_loss", "repeated_loss", "target_loss" or "own_loss".
const char* metric_of(const AblationRequest& request);

}  // namespace headscope
