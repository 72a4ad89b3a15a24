#pragma once

#include <atomic>

#include "headscope/monitor.h"
#include "plugin/examples/attention_only_lm/demo_options.h"
#include "plugin/examples/attention_only_lm/model.h"
#include "plugin/examples/attention_only_lm/training_result.h"
#include "plugin/examples/text/corpus.h"

namespace headscope::demo {

/// Trains until options.steps or until `stop` is set; a step that has begun is finished. `monitor`
/// may be null.
TrainingResult train(AttentionOnlyLm& model, const Corpus& corpus, const DemoOptions& options,
                     Monitor* monitor, const std::atomic<bool>& stop);

/// Sets the probe on the model; throws std::invalid_argument naming value and fix.
void set_demo_probe(Monitor& monitor, AttentionOnlyLm& model, const Corpus& corpus);

}  // namespace headscope::demo
