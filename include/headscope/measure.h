#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headscope/export.h"

namespace headscope {

// The operators of torch's namespace headscope, callable from C++.
//
// Letters as in docs/math.md:
//   B batch, T tokens, H heads (Hq query heads, Hkv key-value heads), D head dimension,
//   R sampled query rows, G groups of target keys
// Inputs   f64, f32, bf16 or f16 with any strides, read only, never part of autograd
// Sums     f64 for f64 inputs, f32 otherwise
// Errors   c10::Error (a std::exception) naming the argument, its shape and what is wanted
// Threads  any; on a GPU the work is ordered on the current stream

/// How the scores of one attention call become attention: all that happened beyond q, k and v.
///
///   s_j = cap(scale q_t . k_j) + bias_tj            over the keys j that query t sees
///   p_j = exp s_j / (sum_i exp s_i + exp sink)      cap(x) = softcap tanh(x / softcap)
///
/// Query t sees key j when every field set here allows it. A wrong or forgotten field is found by
/// the monitor's self-check. Tensors are read before a call returns.
struct AttentionCall {
  /// Mask or bias, broadcastable to [B, Hq, T, T]: bool (true: attend), or added to the scores.
  std::optional<at::Tensor> bias = {};
  /// Keys after the query are masked, also beside a bias.
  bool is_causal = true;
  /// Default: 1 / sqrt(D).
  std::optional<double> scale = {};
  /// Probability with which this call drops attention weights. > 0: no self-check.
  double dropout = 0.0;
  /// [B, T] bool: tokens that count (false: padding). Says nothing about the scores.
  std::optional<at::Tensor> keep = {};
  /// > 0: caps the scaled scores, before the bias.
  double softcap = 0.0;
  /// > 0: only keys with t - window < j (and j < t + window when not causal).
  int64_t window = 0;
  /// [B, T] i64, the document of each token in a packed row: other documents' keys are not seen.
  std::optional<at::Tensor> documents = {};
  /// [Hq] float: a learned logit of each head in the softmax's denominator, without a value.
  std::optional<at::Tensor> sinks = {};
};

/// Adds one batch to the running second moment of every head's output, about a shift.
///
///   gram[h] += sum_n (z_n - c)(z_n - c)^T      c = shift[h], n over the N kept (b, t)
///   sum[h]  += sum_n (z_n - c)
///   count   += N
///
/// gram   [H, D, D] f32 or f64, contiguous, both triangles written
/// sum    [H, D], dtype of gram
/// count  [1] i64
/// z      [B, H, T, D]
/// shift  [H, D], dtype of gram: any value near the mean keeps both participation ratios exact;
///        zero gives the sum of z z^T
/// keep   [B, T] bool: tokens to count (false: padding); absent: all
///
/// Cost: B T H D (D + 1) FLOP, reads z once. Nothing is written when B, T or H is 0.
HEADSCOPE_API void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count,
                                    const at::Tensor& z, const at::Tensor& shift,
                                    const std::optional<at::Tensor>& keep = std::nullopt);

/// What the sampled query rows attend to, recomputed from q and k: never O(T^2). A sink's share of
/// the attention is in the mass of no key.
struct AttentionRows {
  /// [B, Hq, R, G] attention summed over the group's keys, 0..1.
  at::Tensor mass;
  /// [B, Hq, R, G] log-mean-exp of the group's pre-softmax scores, nats. -inf: every key of the
  /// group is masked, or the group is empty.
  at::Tensor score;
  /// [B, Hq, R] entropy of the row, nats; a sink counts as one more outcome.
  at::Tensor entropy;
  /// [B, Hq, R] largest pre-softmax score of a key.
  at::Tensor max_logit;
  /// [B, Hq, R] of the scores and the sink. -inf: every key is masked (the row's other figures are
  /// NaN). NaN: unused row.
  at::Tensor log_sum_exp;
  /// [B, Hq, R] attention on key 0.
  at::Tensor first_mass;
};

/// Recomputes softmax rows of sampled queries and sums them over groups of target keys.
///
///   mass_g = sum_{j in g} p_j,   p as in AttentionCall
///
/// q        [B, Hq, Tq, D]
/// k        [B, Hkv, Tk, D], Hq a multiple of Hkv: query head h reads key head h / (Hq / Hkv)
/// rows     [B, R] i64 query positions; -1: unused
/// targets  [n] i64 key positions, distinct within a group
/// offsets  [B * R * groups + 1] i64: group g of row r of sequence b is
///          targets[offsets[i] .. offsets[i + 1]) with i = (b R + r) groups + g
/// groups   G, groups of every row
/// call     dropout and keep play no part; documents need Tq = Tk; causality aligns at the top
///          left, as in scaled_dot_product_attention
///
/// Returns f32 (f64 for f64 inputs), contiguous. Cost: B Hq R Tk D multiply-adds; keys hidden by
/// causality, window or documents are never read.
HEADSCOPE_API AttentionRows attention_mass(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& rows, const at::Tensor& targets,
                                           const at::Tensor& offsets, int64_t groups,
                                           const AttentionCall& call = {});

/// Eigenvalues of symmetric matrices, ascending.
///
/// matrices  [..., n, n] f32 or f64; the lower triangle counts
///
/// Returns [..., n] f64. Errors, relative to the largest magnitude:
///   f64 input  (16 + 16 sqrt n) 2^-53
///   f32 input  (16 + 2 sqrt n + n / 2) 2^-24: reduced in f32, solved in f64 (3e-7 measured on
///              Grams of n = 64 and 128; matrices whose entries have one magnitude come near it)
///   n > 256    LAPACK's in f64
/// Small eigenvalues may come out below 0 by that much. A matrix with NaN or Inf gives NaN
/// eigenvalues and leaves the others alone. The bits of a matrix's result depend on neither the
/// rest of the batch nor the number of threads.
HEADSCOPE_API at::Tensor symmetric_eigenvalues(const at::Tensor& matrices);

/// Recomputes sampled rows of the attention output: what the monitor's self-check compares with z.
///
///   z_t = sum_j p_j v_j,   p as in AttentionCall
///
/// q, k, rows, call  as for attention_mass
/// v                 [B, Hkv, Tk, Dv]
///
/// Returns [B, Hq, R, Dv] f32 (f64 for f64 inputs). Unused and fully masked rows are NaN.
HEADSCOPE_API at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const at::Tensor& rows,
                                        const AttentionCall& call = {});

/// Whether this build has kernels for a kind of device. Any thread.
HEADSCOPE_API bool measures_on(c10::DeviceType device);

}  // namespace headscope
