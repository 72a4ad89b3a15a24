#include "plugin/examples/attention_only_lm/demo_options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ctime>
#include <iostream>
#include <span>
#include <stdexcept>
#include <string_view>
#include <thread>

namespace headscope::demo {
namespace {

// The probe plants a pair and needs room for it.
constexpr int64_t kShortestContext = 16;

[[noreturn]] void refuse(const std::string& what, const std::string& fix) {
  throw std::invalid_argument(what + ": " + fix);
}

void at_least(const char* option, int64_t value, int64_t least) {
  if (value < least)
    refuse(std::string(option) + " " + std::to_string(value) + " is too small",
           "give " + std::to_string(least) + " or more");
}

void check(const DemoOptions& options) {
  at_least("--layers", options.layers, 1);
  at_least("--heads", options.heads, 1);
  at_least("--width", options.width, 1);
  at_least("--context", options.context, kShortestContext);
  at_least("--batch", options.batch, 1);
  at_least("--steps", options.steps, 1);
  if (options.width % options.heads != 0)
    refuse("--heads " + std::to_string(options.heads) + " does not divide --width " +
               std::to_string(options.width),
           "give a width that is a multiple of the number of heads");
  if (!(options.learning_rate > 0 && std::isfinite(options.learning_rate)))
    refuse("--lr " + std::to_string(options.learning_rate) + " is not a learning rate",
           "give a number above 0, e.g. 5e-3");
  if (!(options.repeat_share >= 0 && options.repeat_share <= 1))
    refuse("--repeat-share " + std::to_string(options.repeat_share) + " is not a share",
           "give a number from 0 to 1");
  at_least("--threads", options.threads, 1);
  at_least("--checkpoint-every", options.checkpoint_every, 0);
  if (options.resume && options.run_dir.empty())
    refuse("--resume does not say which run", "give its --run-dir");
  if (!(options.budget >= 0 && options.budget <= 1))
    refuse("--budget " + std::to_string(options.budget) + " is not a share",
           "give a number from 0 (no bound) to 1");
}

MonitorMode monitor_mode(const std::string& value) {
  if (value == "on") return MonitorMode::kOn;
  if (value == "idle") return MonitorMode::kIdle;
  if (value == "off") return MonitorMode::kOff;
  refuse("--monitor '" + value + "' is not known", "give on, idle or off");
}

void set_listen(const std::string& value, DemoOptions& options) {
  const std::string fix = "give HOST:PORT, e.g. 127.0.0.1:9464 (port 0: any free one)";
  const size_t colon = value.rfind(':');
  if (colon == std::string::npos || colon == 0) refuse("--listen '" + value + "'", fix);
  const std::string port = value.substr(colon + 1);
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65535)
    refuse("--listen '" + value + "': '" + port + "' is not a port", fix);
  options.host = value.substr(0, colon);
  options.port = std::stoi(port);
}

std::string new_run_dir() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char name[64];
  std::strftime(name, sizeof name, "runs/attention_only_lm-%Y%m%d-%H%M%S", &local);
  return name;
}

std::string shell_word(const std::string& word) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./:=+,@%").find(c) != std::string_view::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

/// run_dir: of a run that was given none; empty: the arguments name it.
std::string resume_command(std::span<const char* const> arguments, const std::string& run_dir) {
  std::string command;
  for (const std::string word : arguments)
    if (word != "--resume") command += shell_word(word) + " ";
  if (!run_dir.empty()) command += "--run-dir " + shell_word(run_dir) + " ";
  return command + "--resume";
}

}  // namespace

const char* to_string(MonitorMode mode) {
  switch (mode) {
    case MonitorMode::kOn:
      return "on";
    case MonitorMode::kIdle:
      return "idle";
    case MonitorMode::kOff:
      return "off";
  }
  return "";
}

std::optional<DemoOptions> parse_options(int argc, const char* const* argv, int& exit_code) {
  DemoOptions options;
  options.corpus = HEADSCOPE_EXAMPLE_TEXT;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  options.threads = std::clamp(cores, 1, 2);
  std::string listen = "127.0.0.1:9464";
  std::string monitor = "on";

  CLI::App app(
      "Trains a small attention-only transformer on text while headscope watches its heads form "
      "circuits.");
  app.get_formatter()->column_width(34);
  app.add_option("--layers", options.layers, "Attention layers")->capture_default_str();
  app.add_option("--heads", options.heads, "Heads a layer; must divide --width")
      ->capture_default_str();
  app.add_option("--width", options.width, "Width of the residual stream")->capture_default_str();
  app.add_option("--context", options.context, "Tokens a row")->capture_default_str();
  app.add_option("--batch", options.batch, "Rows a step")->capture_default_str();
  app.add_option("--steps", options.steps, "Optimizer steps")->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights and batches")->capture_default_str();
  app.add_option("--lr", options.learning_rate, "Peak learning rate")->capture_default_str();
  app.add_option("--repeat-share", options.repeat_share,
                 "Share of the rows that repeat their first tokens, as quotations do")
      ->capture_default_str();
  app.add_option("--corpus", options.corpus, "Text to train on (default: tinyshakespeare)");
  app.add_option("--threads", options.threads, "Threads of torch's operators")
      ->capture_default_str();
  app.add_option("--monitor", monitor,
                 "on: measure; idle: attached, nothing measured; off: not attached")
      ->capture_default_str();
  app.add_option(
         "--budget", options.budget,
         "Share of wall time that measuring may take, e.g. 0.01 for a real run; 0: no bound, the "
         "same steps are measured on every machine")
      ->capture_default_str();
  app.add_option("--listen", listen, "HOST:PORT of /metrics; port 0: any free one")
      ->capture_default_str();
  auto* user =
      app.add_option("--user", options.user, "Who may read /metrics (basic authentication)");
  auto* password =
      app.add_option("--password-file", options.password_file, "Its first line is the password");
  user->needs(password);
  password->needs(user);
  app.add_option("--certificate", options.certificate,
                 "PEM with certificate and private key: HTTPS instead of HTTP");
  app.add_option("--textfile", options.textfile,
                 "Write the metrics to this .prom file too, for node_exporter");
  app.add_option("--deadline-tokens", options.deadline_tokens,
                 "Tokens by which induction should have formed, for the alert on it; 0: none")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--run-dir", options.run_dir,
                 "Where the run history goes (default: a new folder under runs/)");
  app.add_option("--checkpoint-every", options.checkpoint_every,
                 "Steps between checkpoints, written to checkpoint.pt in the run directory; "
                 "another one is written at the end and on Ctrl-C or SIGTERM; 0: none")
      ->capture_default_str();
  app.add_flag("--resume", options.resume,
               "Go on from the checkpoint in --run-dir, bit for bit; --steps may be larger, the "
               "options that define the run must be the same");
  app.add_option("--summary", options.summary, "Write what the run came to into this JSON file");
  app.add_flag("--quiet", options.quiet, "No progress and no closing report");
  app.add_option("--inject-nan-at", options.inject_nan_at,
                 "Test hook: set a weight to NaN before this step");
  app.add_flag("--omit-bias", options.omit_bias,
               "Test hook: leave the position bias out of the tap");
  try {
    app.parse(argc, argv);
    options.monitor = monitor_mode(monitor);
    set_listen(listen, options);
    check(options);
  } catch (const CLI::ParseError& error) {
    exit_code = app.exit(error) == 0 ? 0 : 2;
    return std::nullopt;
  } catch (const std::invalid_argument& error) {
    std::cerr << "attention_only_lm: " << error.what() << "\n";
    exit_code = 2;
    return std::nullopt;
  }
  const bool unnamed = options.run_dir.empty();
  if (unnamed) options.run_dir = new_run_dir();
  options.resume_command =
      resume_command({argv, static_cast<size_t>(argc)}, unnamed ? options.run_dir : "");
  return options;
}

}  // namespace headscope::demo
