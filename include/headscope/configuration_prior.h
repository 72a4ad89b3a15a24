#pragma once

#include "headscope/export.h"

namespace headscope {

/// Tokens by which an induction circuit is to be expected from the configuration of a training run
/// alone. A prior, not a measurement: it looks at no head, and knows neither data nor model.
///
///   tokens = 10^5.7 sqrt(batch context)
///
/// batch    sequences of an optimizer step, over all micro-batches and processes
/// context  tokens of a training sequence
///
/// Throws std::invalid_argument naming the value unless both are finite and at least 1.
HEADSCOPE_API double configuration_prior_tokens(double batch, double context);

}  // namespace headscope
