#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "headscope/export.h"

namespace headscope {

// The operators of torch's namespace headscope, callable from C++. Letters as in docs/math.md: B
// batch, T tokens, H heads (Hq query heads, Hkv key-value heads), D head dimension, R sampled rows,
// G target groups. Inputs are f64, f32, bf16 or f16 with any strides, read only, never part of
// autograd. Sums are f64 for f64 inputs and f32 otherwise. Errors: c10::Error (a std::exception)
// naming the argument, its shape and what is wanted.

/// How the scores of one attention call become attention: all that happened beyond q, k and v.
///
///   s_j = cap(scale q_t . k_j) + bias_tj over the keys that t sees,   cap(x) = softcap tanh(x /
///   softcap) p_j = exp s_j / (sum_i exp s_i + exp sink)
///
/// Query t sees key j when all that is set here allows it. A wrong or forgotten field is found by
/// the monitor's self-check. Tensors are read before a call returns.
struct AttentionCall {
  std::optional<at::Tensor> bias =
      {};  ///< mask or bias broadcastable to [B, Hq, T, T]: bool (true: attend) or additive
  bool is_causal = true;             ///< keys after the query are masked (also beside a bias)
  std::optional<double> scale = {};  ///< default 1 / sqrt(D)
  double dropout = 0.0;              ///< of the attention weights in this call; > 0: no self-check
  std::optional<at::Tensor> keep = {};  ///< [B, T] bool: tokens that count (false: padding); says
                                        ///< nothing about the scores
  double softcap = 0.0;                 ///< > 0: caps the scaled scores, before the bias
  int64_t window = 0;  ///< > 0: only keys with t - window < j (and j < t + window when not causal)
  std::optional<at::Tensor> documents =
      {};  ///< [B, T] i64: packed documents; keys of another document than the query's are unseen
  std::optional<at::Tensor> sinks =
      {};  ///< [Hq] float: a learned logit a head in the softmax's denominator, without a value
};

/// Adds one batch to the running second moment of every head's output, about a shift.
///
///   G[h] += sum_n (z_n - c)(z_n - c)^T,   s[h] += sum_n (z_n - c),   n += N      with c =
///   shift[h], n over kept (b, t)
///
/// gram  [H, D, D] f32 or f64, contiguous, both triangles written;  sum [H, D] of the same dtype;
/// count [1] i64 z     [B, H, T, D];  shift [H, D], dtype of gram: any value near the mean keeps
/// both PRs exact, zero gives G = sum z z^T keep  [B, T] bool: tokens to count (padding out);
/// absent: all Cost: B T H D (D + 1) FLOP, reads z once. Nothing is written when B, T or H is 0.
HEADSCOPE_API void accumulate_gram_(at::Tensor& gram, at::Tensor& sum, at::Tensor& count,
                                    const at::Tensor& z, const at::Tensor& shift,
                                    const std::optional<at::Tensor>& keep = std::nullopt);

/// What the sampled query rows attend to, recomputed from q and k: never O(T^2). With sinks masses
/// leave room for the sink's share, which belongs to no key.
struct AttentionRows {
  at::Tensor mass;   ///< [B, Hq, R, G] attention summed over the group's keys, 0..1
  at::Tensor score;  ///< [B, Hq, R, G] log-mean-exp of the group's pre-softmax scores, nats; -inf:
                     ///< all masked or empty group
  at::Tensor entropy;      ///< [B, Hq, R] of the row, nats; a sink counts as one more outcome
  at::Tensor max_logit;    ///< [B, Hq, R] largest pre-softmax score of a key
  at::Tensor log_sum_exp;  ///< [B, Hq, R] of the scores and the sink; -inf: every key masked (the
                           ///< row's other figures are NaN), NaN: unused row
  at::Tensor first_mass;   ///< [B, Hq, R] attention on key 0
};

/// Recomputes softmax rows of sampled queries and sums them over groups of target keys.
///
///   mass_g = sum_{j in g} p_j,   p as in AttentionCall
///
/// q [B, Hq, Tq, D], k [B, Hkv, Tk, D], Hq a multiple of Hkv: query head h reads key head h / (Hq /
/// Hkv). rows    [B, R] i64 query positions, -1: unused targets [n] i64 key positions; offsets [B *
/// R * groups + 1] i64: group g of row r of sequence b is
///         targets[offsets[i] .. offsets[i + 1]), i = (b R + r) groups + g. Positions within a
///         group are distinct.
/// call: its dropout and keep play no part; causality aligns at the top left as
/// scaled_dot_product_attention does; documents need Tq = Tk. Keys hidden by causality, window or
/// documents are never read. Outputs are f32 (f64 for f64 inputs), contiguous.
HEADSCOPE_API AttentionRows attention_mass(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& rows, const at::Tensor& targets,
                                           const at::Tensor& offsets, int64_t groups,
                                           const AttentionCall& call = {});

/// Eigenvalues of symmetric matrices, ascending.
/// matrices [..., n, n] f32 or f64, the lower triangle counts. Returns [..., n] f64.
/// Errors relative to the largest magnitude: f64 input (16 + 16 sqrt n) 2^-53; f32 input (16 + 2
/// sqrt n + n / 2) 2^-24 (3e-7 measured on Grams of n = 64 and 128; entries of one magnitude come
/// near it), as it is reduced in f32 and solved in f64; n > 256 is LAPACK's in f64. Small
/// eigenvalues may come out below 0 by that much. A matrix with NaN or Inf gives NaN eigenvalues
/// and leaves the others alone; the bits of a matrix's result depend on neither the rest of the
/// batch nor the number of threads.
HEADSCOPE_API at::Tensor symmetric_eigenvalues(const at::Tensor& matrices);

/// Sampled rows of the attention output recomputed from q, k, v with the same conventions; what the
/// self-check compares. v [B, Hkv, Tk, Dv]. Returns [B, Hq, R, Dv] (f32, f64 for f64); unused and
/// fully masked rows are NaN.
HEADSCOPE_API at::Tensor recompute_rows(const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const at::Tensor& rows,
                                        const AttentionCall& call = {});

/// Whether this build has kernels for a kind of device.
HEADSCOPE_API bool measures_on(c10::DeviceType device);

}  // namespace headscope
