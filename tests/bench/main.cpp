// Prints the goals' table with what this machine measures: ./run.sh bench.

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/cpu/Utils.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>

#include "headscope/version.h"
#include "tests/bench/runner.h"

namespace headscope::bench {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json row_json(const Row& row) {
  return {{"id", row.id},
          {"name", row.name},
          {"must", number(row.must)},
          {"aim", number(row.aim)},
          {"measured", number(row.measured)},
          {"unit", row.unit},
          {"meets_must", row.is_measured() ? json(row.meets(row.must)) : json(nullptr)},
          {"meets_aim", row.is_measured() ? json(row.meets(row.aim)) : json(nullptr)},
          {"spread", number(row.spread)},
          {"roof", row.roof},
          {"note", row.note}};
}

void print(const Row& row) {
  if (!row.is_measured()) {
    std::printf("%-6s %-52s not measured: %s\n", row.id.c_str(), row.name.c_str(),
                row.note.c_str());
    return;
  }
  const char* verdict = row.meets(row.aim) ? "aim" : row.meets(row.must) ? "must" : "below must";
  std::printf("%-6s %-52s must %-8.3g aim %-8.3g measured %-9.3g %-3s %-10s spread %3.0f %%  %s\n",
              row.id.c_str(), row.name.c_str(), row.must, row.aim, row.measured,
              row.unit == "relative error" ? "" : row.unit.c_str(), verdict, 100 * row.spread,
              row.roof.c_str());
}

}  // namespace
}  // namespace headscope::bench

int main(int argc, char** argv) {
  using namespace headscope::bench;
  CLI::App app(
      "Measures headscope against its goals: baseline and candidate interleaved in one process, "
      "best of 7, one thread.");
  std::string file;
  bool strict = false;
  app.add_option("--json", file, "Write the rows into this file");
  std::string group;
  app.add_option("--group", group, "Only these rows: kernels, monitor or cost")
      ->check(CLI::IsMember({"kernels", "monitor", "cost"}));
  app.add_flag("--strict", strict, "Exit with 1 when a measured row is below its must");
  CLI11_PARSE(app, argc, argv);
  try {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // a row is seen when it is measured
    at::set_num_threads(1);
    const std::string instructions = at::get_cpu_capability();
    std::printf("headscope %s, CPU capability %s, one thread\n", headscope::version(),
                instructions.c_str());
    nlohmann::json rows = nlohmann::json::array();
    bool below = false;
    const Emit emit = [&](const Row& row) {
      print(row);
      rows.push_back(row_json(row));
      below = below || (row.is_measured() && !row.meets(row.must));
    };
    const std::vector<std::pair<std::string, void (*)(const Emit&)>> groups = {
        {"kernels", kernel_rows},
        {"monitor", monitor_rows},
        {"cost", cost_rows},
        {"", unmeasured_rows}};
    for (const auto& [name, measure] : groups) {
      if (group.empty() || name == group) measure(emit);
    }
    if (!file.empty()) {
      std::ofstream out(file);
      out << nlohmann::json{{"machine", {{"cpu_capability", instructions}, {"threads", 1}}},
                            {"rows", rows}}
                 .dump(2)
          << "\n";
      if (!out.flush()) throw std::runtime_error("cannot write " + file);
    }
    return strict && below ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "headscope_bench: %s\n", error.what());
    return 2;
  }
}
