#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>

#include "headscope/measure.h"

// Argument checks that several callers share. Each throws c10::Error with shape and remedy.
namespace headscope::measure {

/// f64 for f64 inputs, f32 otherwise.
at::ScalarType sum_type(const at::Tensor& input);

/// [B, H, T, D] of a dtype that is measured; name: the argument's.
void check_activation(const char* name, const at::Tensor& tensor);
/// q, k and all that the call says about their scores.
void check_attention(const at::Tensor& q, const at::Tensor& k, const AttentionCall& call);

/// The values themselves, on the host: rows [B, R] are queries or -1, targets [n] are keys, offsets
/// ascend within the targets. Undefined targets are not looked at.
void check_positions(const at::Tensor& rows, int64_t queries, const at::Tensor& targets,
                     const at::Tensor& offsets, int64_t keys);
/// All of these (null: absent) are on the device of `first`.
void check_device(const at::Tensor& first, std::initializer_list<const at::Tensor*> others);

}  // namespace headscope::measure
