#include "plugin/examples/attention_only_lm/train.h"

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>

#include "plugin/examples/attention_only_lm/report.h"
#include "plugin/examples/text/loss_hash.h"

namespace headscope::demo {
namespace {

constexpr int64_t kWarmUpSteps = 50;
constexpr double kGradientNorm = 1.0;
constexpr int64_t kPlainReportEvery = 100;
constexpr int64_t kScoredRows = 128;
constexpr int64_t kLeastVocabulary = 16;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double unix_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double plain_loss(AttentionOnlyLm& model, const at::Tensor& rows) {
  if (rows.size(0) == 0) return kNaN;
  const at::NoGradGuard no_grad;
  const int64_t context = rows.size(1) - 1;
  const at::Tensor logits = model.forward(rows.narrow(1, 0, context));
  return language_loss(logits, rows.narrow(1, 1, context)).item<double>();
}

RepeatScore score_repeats(AttentionOnlyLm& model, const at::Tensor& source) {
  if (source.size(0) == 0) return {};
  const at::NoGradGuard no_grad;
  const int64_t context = model.shape().context;
  const at::Tensor tokens = repeated_block(source, source.size(0), context);
  // From the last token of the first copy on, every next token stands one period earlier.
  const int64_t start = context / 2 - 1;
  const int64_t scored = context - 1 - start;
  const at::Tensor logits = model.forward(tokens).narrow(1, start, scored);
  const at::Tensor labels = tokens.narrow(1, start + 1, scored);
  return {language_loss(logits, labels).item<double>(),
          logits.argmax(-1).eq(labels).to(at::kDouble).mean().item<double>()};
}

/// What the demo says of its model when nobody else does.
class Evaluator {
 public:
  Evaluator(AttentionOnlyLm& model, const Corpus& corpus, uint64_t seed) : model_(model) {
    const int64_t context = model.shape().context;
    const int64_t vocab = model.shape().vocab_size;
    text_ = consecutive_rows(corpus.validation, context + 1, kScoredRows);
    random_ = random_tokens(kScoredRows, context, 0, vocab, static_cast<uint32_t>(seed) + 1);
  }
  double validation_loss() { return plain_loss(model_, text_); }
  RepeatScore repeated_text() { return score_repeats(model_, text_); }
  RepeatScore repeated_random() { return score_repeats(model_, random_); }

 private:
  AttentionOnlyLm& model_;
  at::Tensor text_;
  at::Tensor random_;
};

class Trainer {
 public:
  Trainer(AttentionOnlyLm& model, const DemoOptions& options)
      : model_(model),
        options_(options),
        optimizer_(model.parameters(), torch::optim::AdamWOptions(options.learning_rate)
                                           .betas({0.9, 0.95})
                                           .weight_decay(0.0)) {}

  /// One optimizer step on rows [B, context + 1]; returns the loss.
  float step(int64_t index, const at::Tensor& rows, StepScope* scope) {
    set_learning_rate(index);
    const at::Tensor input = rows.narrow(1, 0, options_.context);
    if (scope != nullptr) scope->micro_batch(input);
    optimizer_.zero_grad();
    const at::Tensor loss =
        language_loss(model_.forward(input), rows.narrow(1, 1, options_.context));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model_.parameters(), kGradientNorm);
    optimizer_.step();
    const float value = loss.item<float>();
    if (scope != nullptr) scope->loss(value);
    return value;
  }

  torch::optim::Optimizer& optimizer() { return optimizer_; }

 private:
  void set_learning_rate(int64_t index) {
    const double warm = std::min(1.0, static_cast<double>(index + 1) / kWarmUpSteps);
    for (auto& group : optimizer_.param_groups())
      group.options().set_lr(options_.learning_rate * warm);
  }

  AttentionOnlyLm& model_;
  const DemoOptions& options_;
  torch::optim::AdamW optimizer_;
};

/// A checkpoint that cannot be written costs the run nothing but the checkpoint.
void save_on_the_way(const std::string& run_dir, const std::string& bytes) {
  try {
    write_checkpoint(run_dir, bytes);
  } catch (const std::runtime_error& error) {
    std::fprintf(stderr, "attention_only_lm: no checkpoint: %s\n", error.what());
  }
}

void inject_nan(AttentionOnlyLm& model) {
  const at::NoGradGuard no_grad;
  model.parameters().front().view({-1})[0].fill_(kNaN);
}

}  // namespace

Trained train(AttentionOnlyLm& model, const Corpus& corpus, const DemoOptions& options,
              const CheckpointFacts& facts, Checkpoint* resumed, Monitor* monitor,
              const std::atomic<bool>& stop) {
  BatchSource batches(corpus.train, options.batch, options.context, options.repeat_share,
                      options.seed);
  Evaluator evaluator(model, corpus, options.seed);
  Trainer trainer(model, options);
  const RunParts parts{model, trainer.optimizer(), batches, monitor};
  TrainingResult result;
  result.loss_hash = LossHash().value();
  if (resumed != nullptr) {
    resumed->restore(parts);
    result = resumed->progress();
  }
  LossHash hash(result.loss_hash);
  const int64_t first_step = result.steps;
  const int64_t tokens_a_step = options.batch * options.context;
  const double monitor_seconds_before = result.monitor_seconds;
  result.legs.push_back({unix_time(), result.seconds, first_step});
  const Clock::time_point start = Clock::now();
  const auto take_stock = [&] {
    result.loss_hash = hash.value();
    result.seconds = result.legs.back().seconds_before + seconds_since(start);
    if (monitor != nullptr)
      result.monitor_seconds = monitor_seconds_before + monitor_seconds(monitor->health());
  };

  for (int64_t step = first_step; step < options.steps && !stop.load(); ++step) {
    if (step == options.inject_nan_at) inject_nan(model);
    std::optional<StepScope> scope;
    if (monitor != nullptr)
      scope.emplace(monitor->begin_step(
          {.step = step, .tokens_seen = static_cast<double>(step * tokens_a_step)}));
    const Clock::time_point step_start = Clock::now();
    const float loss = trainer.step(step, batches.next(), scope ? &*scope : nullptr);
    result.step_seconds += seconds_since(step_start);
    scope.reset();
    hash.add(loss);
    result.final_loss = loss;
    result.steps = step + 1;
    // With the monitor on, its own progress line speaks.
    const bool speak = options.monitor != MonitorMode::kOn && !options.quiet;
    if (speak && result.steps % kPlainReportEvery == 0) {
      const RepeatScore repeated = evaluator.repeated_random();
      std::fprintf(stderr,
                   "step %5lld  loss %.3f  validation %.3f  repeated random tokens: %.2f nats, "
                   "%.2f right  %.1f ms a step\n",
                   static_cast<long long>(result.steps), loss, evaluator.validation_loss(),
                   repeated.loss, repeated.accuracy,
                   1e3 * result.step_seconds / static_cast<double>(result.steps));
    }
    if (options.checkpoint_every > 0 && result.steps % options.checkpoint_every == 0 &&
        result.steps < options.steps && !stop.load()) {
      take_stock();
      save_on_the_way(options.run_dir, checkpoint_bytes(facts, result, parts));
    }
  }
  take_stock();
  Trained trained;
  if (options.checkpoint_every > 0 && result.steps > first_step)
    trained.checkpoint = checkpoint_bytes(facts, result, parts);
  result.interrupted = result.steps < options.steps;
  result.validation_loss = evaluator.validation_loss();
  result.repeated_random = evaluator.repeated_random();
  result.repeated_text = evaluator.repeated_text();
  trained.result = std::move(result);
  return trained;
}

void set_demo_probe(Monitor& monitor, AttentionOnlyLm& model, const Corpus& corpus) {
  ProbeOptions probe;
  probe.vocab_size = model.shape().vocab_size;
  if (probe.vocab_size < kLeastVocabulary)
    throw std::invalid_argument("--corpus has " + std::to_string(probe.vocab_size) +
                                " different tokens and the probe needs at least " +
                                std::to_string(kLeastVocabulary) +
                                ": give a more varied text, or --monitor off");
  probe.context = model.shape().context;
  probe.examples = 64;  // four training batches; as many again for the PR null
  probe.held_out = consecutive_rows(corpus.validation, probe.context, kScoredRows);
  monitor.set_probe(
      model, [&model](const at::Tensor& tokens) { return model.forward(tokens); }, probe,
      [&model](const at::Tensor& tokens) { return model.residual(tokens); });
}

}  // namespace headscope::demo
