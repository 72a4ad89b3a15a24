#pragma once

#include <atomic>
#include <string>

#include "headscope/monitor.h"
#include "plugin/examples/attention_only_lm/checkpoint.h"
#include "plugin/examples/attention_only_lm/demo_options.h"
#include "plugin/examples/attention_only_lm/model.h"
#include "plugin/examples/attention_only_lm/training_result.h"
#include "plugin/examples/text/corpus.h"

namespace headscope::demo {

/// A finished training and, with checkpoints on, the one of its last step: to be written once the
/// monitor is closed, so that whatever it tells of these steps lies on the disk before.
struct Trained {
  TrainingResult result;
  std::string checkpoint;  ///< empty: none
};

/// Trains until options.steps or until `stop` is set; a step that has begun is finished. `monitor`
/// may be null. resumed: goes on from it; null: from the beginning.
Trained train(AttentionOnlyLm& model, const Corpus& corpus, const DemoOptions& options,
              const CheckpointFacts& facts, Checkpoint* resumed, Monitor* monitor,
              const std::atomic<bool>& stop);

/// Sets the probe on the model; throws std::invalid_argument naming value and fix.
void set_demo_probe(Monitor& monitor, AttentionOnlyLm& model, const Corpus& corpus);

}  // namespace headscope::demo
