#include "plugin/cli/bands.h"

#include <algorithm>
#include <cmath>

namespace headscope::cli {

const char* to_string(Axis axis) { return axis == Axis::kTokens ? "tokens" : "steps"; }

double place_of(const Moment& moment, Axis axis) {
  if (axis == Axis::kTokens) return moment.tokens;
  return moment.step < 0 ? kNaN : static_cast<double>(moment.step);
}

const char* to_string(Milestone milestone) {
  return milestone == Milestone::kEmerging ? "emerging" : "formed";
}

Moment moment_of(const CircuitReading& circuit, Milestone milestone) {
  if (milestone == Milestone::kEmerging) return {circuit.emerging_step, circuit.emerging_tokens};
  return {circuit.formed_step, circuit.formed_tokens};
}

Band band_of(const std::vector<Censored>& dates, double factor_of_one) {
  Band band;
  band.references = std::ssize(dates);
  for (const Censored& date : dates) {
    if (std::isnan(date.by)) continue;
    ++band.dated;
    band.low = std::fmin(band.low, date.after);
    band.high = std::fmax(band.high, date.by);
  }
  if (band.dated == 1) {
    band.factor = factor_of_one;
    band.low /= factor_of_one;
    band.high *= factor_of_one;
  }
  return band;
}

Standing standing_of(const Band& band, const Censored& date, double not_by) {
  if (band.dated == 0) return {"no band", kNaN};
  if (std::isnan(date.by))
    return not_by >= band.high ? Standing{"absent", not_by / band.high}
                               : Standing{"not due yet", kNaN};
  if (date.after >= band.high) return {"late", date.after / band.high};
  if (date.by <= band.low) return {"early", band.low / date.by};
  return {"in band", kNaN};
}

}  // namespace headscope::cli
