#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "headscope/measure.h"

namespace headscope {

/// Which keys up to its own position each sampled query may attend to, in any head.
///
/// rows  [B, R] i64; -1: unused (sees nothing)
/// call  checked (csrc/measure/checks.h); of a mask only the sampled rows are read
///
/// Returns bool [B, R, T]: false where the call's window, documents, keep or bias (bool false, or
/// -inf in every head) hides the key. Undefined when nothing is hidden, which costs nothing for a
/// call that is causal alone.
at::Tensor seen_keys(const at::Tensor& rows, int64_t tokens, const AttentionCall& call);

/// How many keys of each group of a plan are seen, [B * R * groups].
///
/// targets, offsets  arguments of attention_mass
/// seen              what seen_keys returned; undefined: every key is seen
std::vector<int64_t> seen_counts(const at::Tensor& targets, const at::Tensor& offsets,
                                 const at::Tensor& seen);

}  // namespace headscope
