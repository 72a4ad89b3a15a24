#pragma once

#include <ATen/core/Tensor.h>

#include "headscope/measure.h"

// Whether what observe() was given belongs together: z against softmax(scale q k^T + bias) v.
namespace headscope {

/// Some rows of a layer's first sequence, to be compared once they are on the host: a chain of
/// small operations on the training stream would cost more than the rows.
struct SelfCheck {
  at::Tensor given;       ///< [1, H, R, Dv] of z, in its dtype
  at::Tensor recomputed;  ///< likewise in f32 or f64; NaN: a row without a key to see
  bool empty() const { return !given.defined(); }
};

/// rows [B, R]; those of the first sequence are taken. Nothing is waited for.
SelfCheck capture_self_check(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const at::Tensor& z, const AttentionCall& call,
                             const at::Tensor& rows);

/// Largest difference between the rows, relative to the largest recomputed value. Infinity: what
/// was given is not finite where it should be. NaN: there is nothing to compare, or neither is
/// finite (reported elsewhere). On the host.
double self_check_error(const SelfCheck& check);

/// The error that rounding explains for a dtype.
double self_check_tolerance(at::ScalarType type);

}  // namespace headscope
