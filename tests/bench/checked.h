#pragma once

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

#include "tests/bench/runner.h"

namespace headscope::bench {

/// Refuses to time a wrong result; NaN is wrong.
inline void require_close(const at::Tensor& got, const at::Tensor& want, double relative,
                          const std::string& what) {
  const double error = (got.to(at::kDouble) - want.to(at::kDouble)).abs().max().item<double>();
  if (!(error <= relative * want.abs().max().item<double>())) {
    throw std::runtime_error(what + " is wrong by " + std::to_string(error) + ": not timed");
  }
}

/// "bmm 1.234 ms"
inline std::string milliseconds(const std::string& what, double seconds) {
  char text[64];
  std::snprintf(text, sizeof text, "%.3f ms", 1e3 * seconds);
  return what + " " + text;
}

/// A row that says how many times faster than the roof or baseline we are.
inline Row ratio_row(const char* id, const std::string& name, double must, double aim,
                     double baseline, const Timing& ours, const std::string& roof) {
  Row row{.id = id, .name = name, .must = must, .aim = aim};
  row.measured = baseline / ours.best;
  row.unit = "x";
  row.spread = ours.spread;
  row.roof = roof;
  return row;
}

}  // namespace headscope::bench
