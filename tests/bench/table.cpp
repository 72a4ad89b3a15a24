#include "tests/bench/table.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <stdexcept>

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

Emit Table::emit() {
  return [this](const Row& row) {
    print(row);
    rows_.push_back(row_json(row));
    below_ = below_ || (row.is_measured() && !row.meets(row.must));
  };
}

void Table::write(const std::string& file) const {
  std::ofstream out(file);
  out << json{{"machine", machine_}, {"rows", rows_}}.dump(2) << "\n";
  if (!out.flush()) throw std::runtime_error("cannot write " + file);
}

}  // namespace headscope::bench
