#pragma once

#include <torch/optim/optimizer.h>
#include <torch/serialize/archive.h>

#include <map>
#include <string>

#include "headscope/monitor.h"
#include "plugin/examples/attention_only_lm/demo_options.h"
#include "plugin/examples/attention_only_lm/model.h"
#include "plugin/examples/attention_only_lm/training_result.h"
#include "plugin/examples/text/corpus.h"

namespace headscope::demo {

/// The options that make a run what it is, by their names, with the corpus by its content: a
/// resumed run must share them.
using RunDefinition = std::map<std::string, std::string>;
RunDefinition definition_of(const DemoOptions& options, const std::string& corpus_text);

/// What a checkpoint says beside how far the run is.
struct CheckpointFacts {
  RunDefinition definition;
  int64_t probe_gap = 0;  ///< of the monitor's schedule, which outlives a change of --steps
  int threads = 0;
};

/// The parts of a run that a checkpoint holds and that resuming puts back.
struct RunParts {
  AttentionOnlyLm& model;
  torch::optim::Optimizer& optimizer;
  BatchSource& batches;
  Monitor* monitor;  ///< null: nobody watches
};

/// `<run_dir>/checkpoint.pt`.
std::string checkpoint_path(const std::string& run_dir);

/// The bytes of a checkpoint of this moment.
std::string checkpoint_bytes(const CheckpointFacts& facts, const TrainingResult& progress,
                             const RunParts& parts);

/// Replaces the run directory's checkpoint, which stays whole until the new one is. Throws
/// std::runtime_error naming path and cause.
void write_checkpoint(const std::string& run_dir, const std::string& bytes);

/// Moves the checkpoint of an earlier run in the same directory aside, so that --resume does not
/// mistake it for this run's. Says so on stderr.
void move_checkpoint_aside(const std::string& run_dir);

/// A checkpoint as read.
class Checkpoint {
 public:
  /// Throws std::invalid_argument naming path and fix when there is none, when it cannot be read,
  /// when options differ (each is named) and when the run has already done options.steps.
  Checkpoint(const DemoOptions& options, const RunDefinition& definition);

  const CheckpointFacts& facts() const { return facts_; }
  const TrainingResult& progress() const { return progress_; }
  /// Puts back what `parts` were.
  void restore(const RunParts& parts);

 private:
  void read(const std::string& path);

  torch::serialize::InputArchive archive_;
  CheckpointFacts facts_;
  TrainingResult progress_;
};

}  // namespace headscope::demo
