// Trains a small attention-only transformer while headscope watches it: the example of
// docs/demo.md.

#include <ATen/Parallel.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>

#include "headscope/monitor.h"
#include "plugin/examples/attention_only_lm/checkpoint.h"
#include "plugin/examples/attention_only_lm/demo_options.h"
#include "plugin/examples/attention_only_lm/model.h"
#include "plugin/examples/attention_only_lm/report.h"
#include "plugin/examples/attention_only_lm/train.h"
#include "plugin/examples/text/corpus.h"

namespace headscope::demo {
namespace {

std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // written from a signal handler

void request_stop(int) { stop_requested.store(true); }

/// The first signal ends training after the current step, a second one ends the process as usual.
void install_signal_handlers() {
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

/// About 40 evenly spaced probes beside the log-spaced early ones: a toy's circuits form within a
/// few hundred steps.
int64_t probe_gap(int64_t steps) { return std::max<int64_t>(1, std::min<int64_t>(25, steps / 40)); }

std::shared_ptr<Monitor> attach_monitor(const DemoOptions& options, int64_t probe_gap) {
  Options attach;
  attach.run_dir = options.run_dir;
  attach.host = options.host;
  attach.port = options.port;
  attach.access.user = options.user;
  attach.access.password_file = options.password_file;
  attach.access.certificate_file = options.certificate;
  attach.textfile = options.textfile;
  if (options.deadline_tokens > 0)
    attach.deadline_tokens = {{"induction", options.deadline_tokens}};
  attach.progress = !options.quiet;
  attach.total_steps = options.steps;
  attach.measure = options.monitor == MonitorMode::kOn;
  attach.schedule.longest_probe_gap = probe_gap;
  attach.schedule.budget = options.budget;
  return Monitor::attach(std::move(attach));
}

int run(const DemoOptions& options) {
  at::set_num_threads(options.threads);
  const std::string text = read_text(options.corpus);
  const Corpus corpus = make_corpus(text, options.corpus, options.context);
  CheckpointFacts facts{definition_of(options, text), probe_gap(options.steps), options.threads};
  std::optional<Checkpoint> resumed;
  if (options.resume) {
    resumed.emplace(options, facts.definition);
    facts.probe_gap = resumed->facts().probe_gap;
    if (resumed->facts().threads != options.threads)
      std::fprintf(stderr,
                   "attention_only_lm: the run so far had --threads %d; with another number losses "
                   "may differ in their last bits\n",
                   resumed->facts().threads);
  } else {
    move_checkpoint_aside(options.run_dir);
  }
  AttentionOnlyLm model({.vocab_size = corpus.tokenizer.vocab_size(),
                         .layers = options.layers,
                         .heads = options.heads,
                         .width = options.width,
                         .context = options.context},
                        options.seed);
  std::shared_ptr<Monitor> monitor;
  if (options.monitor != MonitorMode::kOff) {
    monitor = attach_monitor(options, facts.probe_gap);
    set_demo_probe(*monitor, model, corpus);
    model.watch(monitor.get(), !options.omit_bias);
  }
  install_signal_handlers();

  DemoOutcome outcome;
  Trained trained = train(model, corpus, options, facts, resumed ? &*resumed : nullptr,
                          monitor.get(), stop_requested);
  outcome.training = std::move(trained.result);
  if (monitor) {
    // The share of the training loop: the closing verification comes after it.
    outcome.monitor_seconds = outcome.training.monitor_seconds;
    if (!outcome.training.interrupted) monitor->verify();
    outcome.run = monitor->report();
    monitor->close();
  }
  if (!trained.checkpoint.empty()) {
    try {
      write_checkpoint(options.run_dir, trained.checkpoint);
    } catch (const std::runtime_error& error) {
      std::fprintf(stderr, "attention_only_lm: no checkpoint: %s\n", error.what());
    }
  }
  outcome.resumable =
      options.checkpoint_every > 0 && std::filesystem::exists(checkpoint_path(options.run_dir));
  if (!options.quiet) std::fputs(closing_report(options, outcome).c_str(), stdout);
  if (!options.summary.empty()) write_summary(options, outcome);
  return 0;
}

}  // namespace
}  // namespace headscope::demo

int main(int argc, char** argv) {
  int exit_code = 0;
  const auto options = headscope::demo::parse_options(argc, argv, exit_code);
  if (!options) return exit_code;
  try {
    return headscope::demo::run(*options);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "attention_only_lm: %s\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "attention_only_lm: %s\n", error.what());
    return 1;
  }
}
