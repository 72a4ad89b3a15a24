#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "tests/bench/runner.h"

namespace headscope::bench {

/// The goals' table: prints each row when it is measured, and keeps all of them for a JSON file
/// {"machine": {...}, "rows": [{"id", "name", "must", "aim", "measured", "unit", "meets_must",
/// "meets_aim", "spread", "roof", "note"}, ...]}; null where a figure was not measured.
class Table {
 public:
  explicit Table(nlohmann::json machine) : machine_(std::move(machine)) {}

  Emit emit();
  /// True when a measured row is below its must.
  bool below_must() const { return below_; }
  /// Throws std::runtime_error that names the file.
  void write(const std::string& file) const;

 private:
  nlohmann::json machine_;
  nlohmann::json rows_ = nlohmann::json::array();
  bool below_ = false;
};

}  // namespace headscope::bench
