#pragma once

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#ifndef HEADSCOPE_SOURCE_DIR
#error "built by headscope_test(), which names the source folder"
#endif

namespace headscope::test {

/// Published numbers of Pythia-1B (tests/data/README.md), objects in the order of the file.
inline nlohmann::ordered_json pythia1b() {
  std::ifstream file(std::string(HEADSCOPE_SOURCE_DIR) + "/tests/data/pythia1b_reference.json");
  return nlohmann::ordered_json::parse(file);
}

/// |got - want| <= relative * |want|, false on NaN.
inline bool close(double got, double want, double relative) {
  return std::abs(got - want) <= relative * std::abs(want);
}

}  // namespace headscope::test
