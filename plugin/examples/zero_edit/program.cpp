#include "plugin/examples/zero_edit/program.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adamw.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "headscope/monitor.h"
#include "plugin/examples/text/corpus.h"
#include "plugin/examples/text/loss_hash.h"

namespace headscope::demo {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct ProgramOptions {
  int64_t steps = 200, layers = 3, context = 64, batch = 8;
  uint64_t seed = 0;
  double learning_rate = 1e-3, budget = 0;
  int threads = 1;
  std::string corpus = HEADSCOPE_EXAMPLE_TEXT, monitor = "on", listen_host = "127.0.0.1", run_dir,
              summary;
  int port = 9464;
  bool quiet = false;
};

std::optional<ProgramOptions> parse(int argc, const char* const* argv, const std::string& name,
                                    int& status) {
  ProgramOptions options;
  CLI::App app(
      name +
      ": trains a small language model whose code knows nothing of headscope, and watches it.");
  app.get_formatter()->column_width(30);
  const auto positive = CLI::Range(int64_t{1}, int64_t{1} << 40);
  app.add_option("--steps", options.steps, "Optimizer steps")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--layers", options.layers, "Attention layers")
      ->capture_default_str()
      ->check(positive);
  app.add_option("--context", options.context, "Tokens a row, at least 16")
      ->capture_default_str()
      ->check(CLI::Range(16, 1 << 20));
  app.add_option("--batch", options.batch, "Rows a step")->capture_default_str()->check(positive);
  app.add_option("--seed", options.seed, "Of weights and batches")->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Learning rate")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--threads", options.threads, "Threads of torch's operators")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  app.add_option("--corpus", options.corpus, "Text to train on (default: tinyshakespeare)");
  app.add_option("--monitor", options.monitor, "on: watch from outside; off: not attached")
      ->capture_default_str()
      ->check(CLI::IsMember({"on", "off"}));
  app.add_option("--budget", options.budget,
                 "Share of wall time that measuring may take; 0: a fixed schedule")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1.0));
  app.add_option("--run-dir", options.run_dir, "Where the run history goes (default: nowhere)");
  app.add_option("--port", options.port, "Of /metrics on 127.0.0.1; 0: any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  app.add_option("--summary", options.summary, "Write what the run came to into this JSON file");
  app.add_flag("--quiet", options.quiet, "No progress line");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    status = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  }
  return options;
}

std::shared_ptr<Monitor> attach(const ProgramOptions& options, const Subject& subject,
                                const Corpus& corpus, std::vector<AttentionSite>& sites) {
  Options attach;
  attach.run_dir = options.run_dir;
  attach.run_name = "zero-edit";
  attach.port = options.port;
  attach.progress = !options.quiet;
  attach.total_steps = options.steps;
  attach.schedule.budget = options.budget;
  attach.schedule.longest_probe_gap = std::clamp<int64_t>(options.steps / 10, 1, 50);
  auto monitor = Monitor::attach(std::move(attach));
  ProbeOptions probe;
  probe.vocab_size = corpus.tokenizer.vocab_size();
  probe.context = options.context;
  probe.examples = 32;
  monitor->set_probe(*subject.module, subject.forward, probe);
  sites = monitor->attach_zero_edit();
  return monitor;
}

struct Outcome {
  double final_loss = kNaN, seconds = 0, monitor_seconds = 0;
  uint64_t loss_hash = 0;
  RunReport run;
  std::vector<AttentionSite> sites;
};

json to_json(const ProgramOptions& options, const Outcome& outcome) {
  const auto number = [](double value) {
    return std::isfinite(value) ? json(value) : json(nullptr);
  };
  json sites = json::array(), circuits = json::array();
  for (const AttentionSite& site : outcome.sites) {
    sites.push_back({{"layer", site.layer},
                     {"kind", site.kind},
                     {"query_heads", site.query_heads},
                     {"key_heads", site.key_heads},
                     {"head_dim", site.head_dim},
                     {"refusal", site.refusal}});
  }
  for (const CircuitReading& circuit : outcome.run.circuits) {
    circuits.push_back({{"pattern", circuit.pattern},
                        {"state", to_string(circuit.state)},
                        {"formed_step", circuit.formed_step}});
  }
  return {{"layers", options.layers},
          {"layers_seen", outcome.run.layers},
          {"steps", options.steps},
          {"final_loss", number(outcome.final_loss)},
          {"loss_hash", hexadecimal(outcome.loss_hash)},
          {"monitor", options.monitor},
          {"monitor_seconds_ratio", number(outcome.monitor_seconds / outcome.seconds)},
          {"probes", outcome.run.health.probes},
          {"taps", outcome.run.health.taps},
          {"taps_missing", outcome.run.health.taps_missing},
          {"errors", outcome.run.health.errors},
          {"sites", sites},
          {"circuits", circuits}};
}

Outcome train(const ProgramOptions& options, const Subject& subject, const Corpus& corpus,
              Monitor* monitor) {
  Outcome outcome;
  BatchSource batches(corpus.train, options.batch, options.context, 0.25, options.seed);
  torch::optim::AdamW optimizer(subject.module->parameters(),
                                torch::optim::AdamWOptions(options.learning_rate));
  LossHash hash;
  const auto start = Clock::now();
  for (int64_t step = 0; step < options.steps; ++step) {
    const at::Tensor rows = batches.next();
    const at::Tensor input = rows.narrow(1, 0, options.context);
    std::optional<StepScope> scope;
    if (monitor != nullptr) {
      scope.emplace(monitor->begin_step(
          {.step = step, .tokens_seen = static_cast<double>(step * input.numel())}));
      scope->micro_batch(input);
    }
    optimizer.zero_grad();
    const at::Tensor logits = subject.forward(input);
    const at::Tensor loss = at::cross_entropy_loss(
        logits.flatten(0, 1), rows.narrow(1, 1, options.context).reshape({-1}));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(subject.module->parameters(), 1.0);
    optimizer.step();
    const auto value = loss.item<float>();
    if (scope) scope->loss(value);
    hash.add(value);
    outcome.final_loss = value;
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  outcome.loss_hash = hash.value();
  return outcome;
}

int run(const ProgramOptions& options, const std::string& name,
        const std::function<Subject(const SubjectShape&)>& make) {
  at::set_num_threads(options.threads);
  at::manual_seed(options.seed);
  const Corpus corpus = make_corpus(read_text(options.corpus), options.corpus, options.context);
  const Subject subject = make({corpus.tokenizer.vocab_size(), options.layers, options.context});
  std::vector<AttentionSite> sites;
  std::shared_ptr<Monitor> monitor;
  if (options.monitor == "on") monitor = attach(options, subject, corpus, sites);
  Outcome outcome = train(options, subject, corpus, monitor.get());
  outcome.sites = std::move(sites);
  if (monitor) {
    outcome.run = monitor->report();
    const Health& health = outcome.run.health;
    outcome.monitor_seconds =
        health.tap_seconds + health.probe_seconds + health.ablation_seconds + health.wait_seconds;
    monitor->close();
  }
  std::printf("%s: %lld steps, final loss %.4f, hash of all losses %s\n", name.c_str(),
              static_cast<long long>(options.steps), outcome.final_loss,
              hexadecimal(outcome.loss_hash).c_str());
  for (const AttentionSite& site : outcome.sites) {
    std::printf("  layer %2lld  %s, %lld query and %lld key heads of %lld  %s\n",
                static_cast<long long>(site.layer), site.kind.c_str(),
                static_cast<long long>(site.query_heads), static_cast<long long>(site.key_heads),
                static_cast<long long>(site.head_dim), site.refusal.c_str());
  }
  if (options.summary.empty()) return 0;
  std::ofstream file(options.summary);
  file << to_json(options, outcome).dump(2) << "\n";
  file.close();
  if (!file) throw std::runtime_error("--summary '" + options.summary + "' cannot be written");
  return 0;
}

}  // namespace

int zero_edit_program(int argc, const char* const* argv, const std::string& name,
                      const std::function<Subject(const SubjectShape&)>& make) {
  int status = 0;
  const auto options = parse(argc, argv, name, status);
  if (!options) return status;
  try {
    return run(*options, name, make);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", name.c_str(), error.what());
    return 1;
  }
}

}  // namespace headscope::demo
