#pragma once

#include <cstdint>
#include <span>

#include "headscope/export.h"

namespace headscope {

/// Effective rank of a spectrum by its entropy (the paper's PR, docs/math.md section 2).
///
///   p_i = l_i / max(sum l, 1e-12),   PR = exp(-sum p_i ln(p_i + 1e-12))
///
/// eigenvalues: of M^T M (squared singular values of M [N, D]), any order; values below 0
/// (rounding) count as 0. Returns NaN for an empty span or a non-finite value; all zero gives 1.
HEADSCOPE_API double participation_ratio(std::span<const double> eigenvalues);

/// The participation ratio of physics, (sum l)^2 / sum l^2. All zero gives 1, like
/// participation_ratio.
HEADSCOPE_API double participation_ratio_quadratic(std::span<const double> eigenvalues);

}  // namespace headscope
