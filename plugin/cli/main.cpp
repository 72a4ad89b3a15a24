// headscope rank | replay | screen | history | draws | compare | metrics | serve | report:
// recorded trajectories and run histories, without torch.

#include <CLI/CLI.hpp>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <string>

#include "headscope/version.h"
#include "plugin/cli/commands.h"

namespace headscope::cli {
namespace {

constexpr int kOutputFailed = 1;
constexpr int kBadInput = 2;

/// Writes all of `text` to standard output; a closed pipe or a full disk is an error, never
/// silence.
int print(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (written && std::fflush(stdout) == 0) return 0;
  std::fprintf(stderr, "headscope: writing the output failed: %s\n", std::strerror(errno));
  return kOutputFailed;
}

const auto kSources = CLI::IsMember({"probe", "train", "all"});

void add_rank(CLI::App& app, RankArguments& arguments) {
  auto* command =
      app.add_subcommand("rank", "Rank heads by the integral of their participation ratio");
  command
      ->add_option(
          "file", arguments.file,
          "CSV with columns layer, head, step, tokens (a count), participation_ratio and "
          "optionally "
          "phase, or trajectories as they are published (docs/cli.md); '-': standard input")
      ->required();
  command
      ->add_option("--axis", arguments.axis,
                   "ln_tokens, ln_tokens_clamped_1b (the reference code) or step")
      ->check(CLI::IsMember({"ln_tokens", "ln_tokens_clamped_1b", "step"}))
      ->capture_default_str();
  command
      ->add_option("--floor-tokens", arguments.floor_tokens, "Least tokens on the axis ln_tokens")
      ->capture_default_str();
  command->add_option("--top", arguments.top, "Print this many heads only")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
  command->add_option("--source", arguments.source, "Rows to use where there is a column source")
      ->check(kSources)
      ->capture_default_str();
  command->footer(
      "Example:\n  headscope history runs/a > a.csv\n"
      "  headscope rank --axis ln_tokens a.csv");
}

void add_replay(CLI::App& app, ReplayArguments& arguments) {
  auto* command = app.add_subcommand(
      "replay", "Run a recorded selectivity trajectory through the states of a circuit");
  command
      ->add_option(
          "file", arguments.file,
          "CSV with columns step, layer, head, selectivity and optionally tokens, pattern, "
          "mass, margin, participation_ratio, phase, context, formed_threshold, source, or "
          "trajectories as they are published (docs/cli.md); '-': standard input")
      ->required();
  command
      ->add_option("--context,--window", arguments.context,
                   "Tokens that the probe's query sees: its row, or its window; default: as the "
                   "file says, or 256")
      ->check(CLI::Range(int64_t{2}, int64_t{INT32_MAX}));
  command->add_option("--rules", arguments.rules, "headscope, or the paper's own: reference")
      ->check(CLI::IsMember({"headscope", "reference"}))
      ->capture_default_str();
  command->add_option("--pattern", arguments.pattern, "Pattern of a file without that column")
      ->capture_default_str();
  command->add_option("--source", arguments.source, "Rows to use where there is a column source")
      ->check(kSources)
      ->capture_default_str();
  command->footer(
      "Example:\n  headscope replay --context 64 a.csv\n"
      "  headscope replay --rules reference a.csv");
}

void add_history(CLI::App& app, HistoryArguments& arguments) {
  auto* command = app.add_subcommand("history", "Print the readings of a run directory");
  command->add_option("run_dir", arguments.run_dir, "The monitor's run directory")->required();
  bool csv = false;
  auto* as_json =
      command->add_flag("--json", arguments.json, "Readings, events and ablations as JSON");
  command->add_flag("--csv", csv, "Readings as CSV for rank and replay (the default)")
      ->excludes(as_json);
  command->add_option("--source", arguments.source, "Readings of the probe, of training, or all")
      ->check(kSources)
      ->capture_default_str();
  command->footer("Example:\n  headscope history runs/a | headscope replay -");
}

void add_draws(CLI::App& app, DrawsArguments& arguments) {
  auto* command = app.add_subcommand(
      "draws", "Print the matched-random sets that the reference code draws as controls");
  command
      ->add_option("--spec", arguments.specs,
                   "The heads of a set as LAYER:HEAD,...; may be given several times, or hold "
                   "several sets separated by ';'")
      ->required();
  command->add_option("--heads", arguments.heads, "Heads of a layer")->required();
  command->add_option("--layers", arguments.layers,
                      "Layers of the model; without it a spec may name any layer");
  command->add_option("--seed", arguments.seeds, "Seed; each one of several gives its own draws")
      ->capture_default_str();
  command->add_flag("--sweep", arguments.sweep,
                    "One generator for all sets of a seed, in their order, as the reference's "
                    "sweep over thresholds has it (default: a new one for each set)");
  command->footer(
      "Example:\n  headscope draws --spec 4:4,7:0,7:1 --heads 8 --seed 123\n"
      "  headscope draws --spec '4:4,4:5,7:0,7:1; 4:4,7:0,7:1' --heads 8 --seed 1 7 --sweep");
}

void add_compare(CLI::App& app, CompareArguments& arguments) {
  auto* command =
      app.add_subcommand("compare", "Circuits, dates and integrals of several runs side by side");
  command->add_option("run_dir", arguments.runs, "The runs' directories")->required();
  command
      ->add_option("--reference", arguments.references,
                   "A run whose dates the others are held against; may be given several times")
      ->allow_extra_args(false);
  command
      ->add_option("--band-factor", arguments.band_factor,
                   "With one reference: how far its band reaches to both sides")
      ->capture_default_str();
  command
      ->add_option("--shift", arguments.shifts,
                   "A step at which new data begins, where steps go on; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--batch", arguments.batch,
                      "Sequences of a training step, for the configuration prior");
  command->add_option("--context", arguments.context,
                      "Tokens of a training sequence, for the configuration prior");
  command->add_flag("--force", arguments.force,
                    "Compare runs of different definitions all the same; the answer says what "
                    "differs");
  command->add_flag("--json", arguments.json, "JSON instead of tables");
  command->footer(
      "Example:\n  headscope compare runs/seed0 runs/seed1 runs/seed2\n"
      "  headscope compare --reference runs/good0 --reference runs/good1 runs/new\n"
      "  headscope compare --batch 16 --context 256 runs/new");
}

void add_metrics(CLI::App& app, MetricsArguments& arguments) {
  auto* command =
      app.add_subcommand("metrics", "Print what /metrics would answer at the end of a run");
  command->add_option("run_dir", arguments.run_dir, "The monitor's run directory")->required();
  command->footer(
      "Example (a Pushgateway):\n  headscope metrics runs/a | curl --fail --data-binary @- "
      "http://localhost:9091/metrics/job/headscope/instance/a");
}

void add_serve(CLI::App& app, ServeArguments& arguments) {
  auto* command = app.add_subcommand(
      "serve", "Show the page of a run directory, while the run writes it or after");
  command->add_option("run_dir", arguments.run_dir, "The monitor's run directory")->required();
  command->add_option("--port", arguments.port, "Taken: the next free one; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  command->add_option("--host", arguments.host, "IPv4 address to listen on; 0.0.0.0: all")
      ->capture_default_str();
  command->add_option("--host-name", arguments.host_names,
                      "A name that browsers may call this server by, besides IP addresses, "
                      "localhost and the machine's own; may be given several times");
  command->footer("Example:\n  headscope serve runs/a --port 8000");
}

void add_report(CLI::App& app, ReportArguments& arguments) {
  auto* command = app.add_subcommand(
      "report", "The page of a run directory as one HTML file that needs no server");
  command->add_option("run_dir", arguments.run_dir, "The monitor's run directory")->required();
  auto* as_json = command->add_flag("--json", arguments.json, "The data of the page as JSON");
  command->add_option("--html", arguments.html, "Write this file (default: standard output)")
      ->excludes(as_json);
  command->footer("Example:\n  headscope report runs/a --html a.html");
}

void add_screen(CLI::App& app, ScreenArguments& arguments) {
  auto* command = app.add_subcommand(
      "screen", "Circuits, classes, precision at k and sinks of all heads at one step");
  command
      ->add_option(
          "file", arguments.file,
          "CSV with columns layer, head and pattern, selectivity or a column for each pattern, and "
          "optionally step, mass, pr_integral, sink_mass, phase, context, source, batch; '-': "
          "standard input")
      ->required();
  command->add_option("--phase", arguments.phase,
                      "Data phase to screen, as the column phase names it (default: the last "
                      "row's)");
  command->add_option("--step", arguments.step, "Step to screen (default: the last)")
      ->check(CLI::Range(int64_t{0}, INT64_MAX));
  command
      ->add_option("--context,--window", arguments.context,
                   "Tokens that the probe's query sees: its row, or its window; default: as the "
                   "file says, or 256")
      ->check(CLI::Range(int64_t{2}, int64_t{INT32_MAX}));
  command->add_option("--rules", arguments.rules, "headscope, or the paper's own: reference")
      ->check(CLI::IsMember({"headscope", "reference"}))
      ->capture_default_str();
  command
      ->add_option("--top", arguments.top,
                   "Heads by pr_integral to break down (default: round(.18 n))")
      ->check(CLI::Range(int64_t{1}, INT64_MAX));
  command->add_option("--source", arguments.source, "Rows to use where there is a column source")
      ->check(kSources)
      ->capture_default_str();
  command->add_flag("--json", arguments.json, "Everything as JSON, with the class of each head");
  command->footer("Example:\n  headscope history runs/a | headscope screen -");
}

int run(int argc, char** argv) {
  CLI::App app("headscope: watch attention heads form circuits", "headscope");
  app.set_version_flag("--version", "headscope " HEADSCOPE_VERSION);
  app.require_subcommand(1);
  app.footer("headscope COMMAND --help shows examples. docs/cli.md has the formats.");
  RankArguments rank_arguments;
  ReplayArguments replay_arguments;
  HistoryArguments history_arguments;
  DrawsArguments draws_arguments;
  CompareArguments compare_arguments;
  MetricsArguments metrics_arguments;
  ServeArguments serve_arguments;
  ReportArguments report_arguments;
  ScreenArguments screen_arguments;
  add_rank(app, rank_arguments);
  add_replay(app, replay_arguments);
  add_history(app, history_arguments);
  add_draws(app, draws_arguments);
  add_compare(app, compare_arguments);
  add_metrics(app, metrics_arguments);
  add_serve(app, serve_arguments);
  add_report(app, report_arguments);
  add_screen(app, screen_arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kBadInput;
    return print("");  // help and version went to standard output
  }
  try {
    if (app.got_subcommand("rank")) return print(rank(rank_arguments));
    if (app.got_subcommand("replay")) return print(replay(replay_arguments));
    if (app.got_subcommand("screen")) return print(screen(screen_arguments));
    if (app.got_subcommand("draws")) {
      const int printed = print(draws(draws_arguments));
      // The answer is as the reference's files have it, so this goes beside it.
      if (printed == 0 && !draws_arguments.layers)
        std::fprintf(stderr, "headscope: without --layers any layer is drawn from\n");
      return printed;
    }
    if (app.got_subcommand("compare")) return print(compare(compare_arguments));
    if (app.got_subcommand("metrics")) return print(metrics(metrics_arguments));
    if (app.got_subcommand("serve")) return print(serve(serve_arguments));
    if (app.got_subcommand("report")) return print(report(report_arguments));
    return print(history(history_arguments));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headscope: %s\n", error.what());
    return kBadInput;
  }
}

}  // namespace
}  // namespace headscope::cli

int main(int argc, char** argv) {
  // A reader that went away is reported by the failed write.
  std::signal(SIGPIPE, SIG_IGN);
  return headscope::cli::run(argc, argv);
}
