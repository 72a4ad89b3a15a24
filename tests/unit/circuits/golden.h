#pragma once

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "headscope/snapshot.h"

#ifndef HEADSCOPE_SOURCE_DIR
#error "built by headscope_test(), which names the source folder"
#endif

namespace headscope::test {

/// Published numbers of Pythia-1B (tests/data/README.md), objects in the order of the file.
inline nlohmann::ordered_json pythia1b() {
  std::ifstream file(std::string(HEADSCOPE_SOURCE_DIR) + "/tests/data/pythia1b_reference.json");
  return nlohmann::ordered_json::parse(file);
}

/// Published final selectivities of all 128 heads of Pythia-1B, standard patterns, PR integral, PR,
/// and PR on random tokens.
inline std::vector<HeadReading> pythia1b_screen() {
  std::ifstream file(std::string(HEADSCOPE_SOURCE_DIR) +
                     "/tests/data/published_pythia1b_screen.csv");
  std::vector<HeadReading> heads;
  std::string line, field;
  std::getline(file, line);  // names
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::vector<double> values;
    while (std::getline(fields, field, ',')) values.push_back(std::stod(field));
    HeadReading& head = heads.emplace_back();
    head.id = {static_cast<int32_t>(values.at(0)), static_cast<int32_t>(values.at(1))};
    head.pr_integral = values.at(2);
    head.participation_ratio = values.at(3);
    head.null_participation_ratio = values.at(4);
    for (size_t p = 0; p < 6; ++p) head.patterns.push_back({.selectivity = values.at(5 + p)});
  }
  return heads;
}

/// |got - want| <= relative * |want|, false on NaN.
inline bool close(double got, double want, double relative) {
  return std::abs(got - want) <= relative * std::abs(want);
}

}  // namespace headscope::test
