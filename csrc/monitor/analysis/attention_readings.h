#pragma once

#include <span>
#include <vector>

#include "csrc/monitor/taps/capture.h"
#include "headscope/snapshot.h"

namespace headscope {

/// Pattern, entropy, logit and sink figures of a layer from the training batch's sampled rows.
void read_train_attention(const LayerCapture& layer, const std::vector<TrainPlan>& plans,
                          std::span<const Pattern> patterns, std::span<HeadReading> readings);

/// The same from the probe.
void read_probe_attention(const LayerCapture& layer, const ProbePlan& plan,
                          std::span<HeadReading> readings);

}  // namespace headscope
