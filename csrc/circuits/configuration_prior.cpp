#include "headscope/configuration_prior.h"

#include <cmath>
#include <stdexcept>
#include <string>

#include "csrc/circuits/text.h"

namespace headscope {

double configuration_prior_tokens(double batch, double context) {
  const auto check = [](const char* name, double value) {
    if (!(value >= 1) || !std::isfinite(value))
      throw std::invalid_argument(std::string(name) + " is " + circuits::number(value) +
                                  "; give a count of 1 or more");
  };
  check("batch (sequences of a step)", batch);
  check("context (tokens of a sequence)", context);
  return std::pow(10, 5.7) * std::sqrt(batch * context);
}

}  // namespace headscope
