#pragma once

#include <cstdint>

#include "csrc/circuits/intervals.h"
#include "headscope/ablation.h"

namespace headscope::circuits {

/// Fewest distinct examples that an interval is made of.
inline constexpr size_t kFewestExamples = 8;

/// Bootstrap interval of the effect; NaN with fewer than kFewestExamples or a loss that is not
/// finite.
Interval effect_interval(const AblationLosses& losses, const VerdictRule& rule);
/// Of effect minus mean control effect, examples and control sets resampled; NaN likewise, or
/// without controls.
Interval difference_interval(const AblationLosses& losses, const VerdictRule& rule);

/// The effect's interval lies above VerdictRule::smallest_effect.
bool has_effect(const AblationLosses& losses, const VerdictRule& rule);
/// The difference's interval lies above 0 and the effect reaches min_ratio times a positive control
/// mean. True without controls.
bool beats_controls(const AblationLosses& losses, const VerdictRule& rule);
/// Label sets whose effect reaches the circuit's on the examples they ran on.
int64_t as_strong(const AblationLosses& losses);

}  // namespace headscope::circuits
