// Prints the goals' table with what this machine measures: ./run.sh bench.

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>
#include <hwy/targets.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "headscope/version.h"
#include "tests/bench/runner.h"
#include "tests/bench/table.h"

int main(int argc, char** argv) {
  using namespace headscope::bench;
  CLI::App app(
      "Measures headscope against its goals: baseline and candidate interleaved in one process, "
      "best of 7, one thread.");
  std::string file;
  bool strict = false;
  app.add_option("--json", file, "Write the rows into this file");
  std::string group;
  app.add_option("--group", group,
                 "Only these rows: gram, eigenvalues, attention, monitor, cost or server")
      ->check(CLI::IsMember({"gram", "eigenvalues", "attention", "monitor", "cost", "server"}));
  app.add_flag("--strict", strict, "Exit with 1 when a measured row is below its must");
  CLI11_PARSE(app, argc, argv);
  try {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a row is seen when it is measured
    at::set_num_threads(1);
    // Below what the CPU has where ATEN_CPU_CAPABILITY says so: ours then does without as well.
    const std::string instructions = at::get_cpu_capability();
    if (instructions == "AVX2") hwy::DisableTargets(HWY_AVX2 - 1);  // those before it are better
    std::printf("headscope %s, CPU capability %s, one thread\n", headscope::version(),
                instructions.c_str());
    Table table({{"cpu_capability", instructions}, {"threads", 1}});
    const std::vector<std::pair<std::string, void (*)(const Emit&)>> groups = {
        {"gram", gram_rows},           {"eigenvalues", eigenvalue_rows},
        {"attention", attention_rows}, {"monitor", monitor_rows},
        {"cost", cost_rows},           {"server", server_rows},
        {"", unmeasured_rows}};
    for (const auto& [name, measure] : groups) {
      if (group.empty() || name == group) measure(table.emit());
    }
    if (!file.empty()) table.write(file);
    return strict && table.below_must() ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headscope_bench: %s\n", error.what());
    return 2;
  }
}
