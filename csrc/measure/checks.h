#pragma once

#include <ATen/core/Tensor.h>

#include <initializer_list>
#include <optional>

#include "headscope/measure.h"

// Argument checks shared by the operators and their fake implementations. Each throws c10::Error
// with shape and remedy.
namespace headscope::measure {

using OptionalTensor = std::optional<at::Tensor>;

/// f64 for f64 inputs, f32 otherwise.
at::ScalarType sum_type(const at::Tensor& input);

void check_gram(const at::Tensor& gram, const at::Tensor& sum, const at::Tensor& count,
                const at::Tensor& z, const at::Tensor& shift, const OptionalTensor& keep);
/// q, k and all that the call says about their scores.
void check_attention(const at::Tensor& q, const at::Tensor& k, const AttentionCall& call);
void check_rows(const at::Tensor& q, const at::Tensor& rows);
void check_targets(const at::Tensor& rows, const at::Tensor& targets, const at::Tensor& offsets,
                   int64_t groups);
void check_values(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v);
void check_matrices(const at::Tensor& matrices);

/// The values themselves, on the host: rows [B, R] are queries or -1, targets [n] are keys, offsets
/// ascend within the targets. Undefined targets are not looked at.
void check_positions(const at::Tensor& rows, int64_t queries, const at::Tensor& targets,
                     const at::Tensor& offsets, int64_t keys);
/// All of these (null: absent) are on the device of `first`.
void check_device(const at::Tensor& first, std::initializer_list<const at::Tensor*> others);

}  // namespace headscope::measure
