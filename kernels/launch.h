#pragma once

#include <cstddef>
#include <cstdint>

struct CUstream_st;

// The CUDA kernels as plain C++: no CUDA or torch header is needed to call them. Letters as in
// docs/math.md. Every launcher works on device pointers, allocates nothing, throws nothing, does
// not synchronise, is ordered on its stream, may be captured into a graph, and may be called by
// several threads at once on workspaces of their own.
namespace headscope::kernels {

using Stream = CUstream_st*;  ///< a cudaStream_t
using Status = int;           ///< a cudaError_t; 0: success
inline constexpr Status kInvalidValue = 1;

enum class ElementType { kBFloat16, kFloat16, kFloat32 };

// ---------------------------------------------------------------- second moments

inline constexpr int kMaxGramWidth = 256;

/// One layer's batch and the running sums that it is added to.
struct GramProblem {
  const void* z = nullptr;  ///< [B, H, T, D]; strides in elements, any, also 0; aligned to its type
  int64_t z_batch_stride = 0, z_head_stride = 0, z_token_stride = 0, z_width_stride = 1;
  const bool* keep = nullptr;  ///< [B, T], tokens to count; nullptr: all. Others are never read
  int64_t keep_batch_stride = 0, keep_token_stride = 0;
  const float* shift = nullptr;   ///< [H, D] contiguous; nullptr: zero
  float* gram = nullptr;          ///< [H, D, D] contiguous, symmetric; added to, both triangles
  float* sum = nullptr;           ///< [H, D] contiguous; added to
  int64_t* count = nullptr;       ///< [1], kept tokens are added; may be nullptr
  float* trace = nullptr;         ///< [H], trace of the new gram; may be nullptr
  float* squared_norm = nullptr;  ///< [H], sum of the squares of the new gram; may be nullptr
  int batch = 0, heads = 0, tokens = 0;
};

/// Tokens that a block sums at least. More: fewer blocks, a smaller workspace.
inline constexpr int kGramTokensPerBlock = 256;

/// Bytes of workspace that launch_gram() needs for the same arguments; 0 for a width that it does
/// not take. About 0.6 D^2 floats for each of some 1056 * 64 / D blocks, or for each head when
/// there are more: below 45 MB, and below one set of grams for large models.
std::size_t gram_workspace_bytes(const GramProblem* problems, int problem_count, int width,
                                 int least_tokens_per_block = kGramTokensPerBlock);

/// Adds one batch to the running second moments of many layers' heads.
///
///   gram[h] += sum_n (z_n - c)(z_n - c)^T
///   sum[h]  += sum_n (z_n - c)               with c = shift[h], n over the kept (b, t)
///
/// problems   each layer's own extents and strides
/// width      D = 1..256, of all problems
/// type       of all problems
/// workspace  16-byte aligned, not to be touched before the launch is over
///
/// Bit-reproducible for equal arguments. A problem with B, T or H = 0 is left alone. Error bound:
/// docs/kernels/gram.md. Cost: reads z once; 2 launches for every 32 problems; D^2 T B H FLOP
/// without a shift, 4 times that with one in any of the problems, 6 times for f32.
/// kInvalidValue: width, an extent below 0, B T > 2^30, or a workspace that is too small.
Status launch_gram(const GramProblem* problems, int problem_count, int width, ElementType type,
                   void* workspace, std::size_t workspace_bytes, Stream stream,
                   int least_tokens_per_block = kGramTokensPerBlock);

// ---------------------------------------------------------------- eigenvalues

inline constexpr int kMaxEigenvalueRows = 256;

/// Equally spaced symmetric matrices: one layer's second moments, say.
struct EigenvalueGroup {
  const float* matrices = nullptr;  ///< row-major; only the lower triangle is read
  int64_t matrix_stride = 0;        ///< elements from one matrix to the next
  int64_t row_stride = 0;           ///< elements from one row to the next, >= n
  int count = 0;                    ///< matrices
};

/// Results, matrices in the order of the groups. f64 although solved in f32: undoing the scaling
/// then neither overflows (an eigenvalue may be 256 times the largest entry) nor loses denormals.
struct EigenvalueOutputs {
  double* eigenvalues = nullptr;   ///< [total, n] ascending
  double* trace = nullptr;         ///< [total]; may be nullptr
  double* squared_norm = nullptr;  ///< [total], sum of the squares of all entries; may be nullptr
  uint8_t* is_finite = nullptr;    ///< [total], 0: NaN or Inf in the lower triangle; may be nullptr
};

/// Eigenvalues of every matrix of every group.
///
///   A[m] x = lambda x,   lambda ascending, within 4e-7 + 2e-7 sqrt(n) of the largest magnitude
///
/// n  0..256
///
/// A matrix with NaN or Inf in its lower triangle gives NaN throughout and leaves the
/// others alone. Scaled by a power of two: entries of 1e-38 and of 3e38 are equally accurate.
/// Bit-reproducible. Cost: one launch for every 32 groups, a block a matrix; about 4/3 n^3 + 250
/// n^2 FLOP in shared memory (9, 34, 132 KB a block at n = 64, 128, 256), each triangle read once.
/// kInvalidValue: n, a count or a row stride out of range, or 2^31 matrices.
Status launch_symmetric_eigenvalues(const EigenvalueGroup* groups, int group_count, int n,
                                    const EigenvalueOutputs& out, Stream stream);

// ---------------------------------------------------------------- attention mass

inline constexpr int kMaxAttentionWidth = 256;

/// One attention call and what is asked of it; meaning as in headscope/measure.h. Strides are in
/// elements, 0 where an axis is broadcast.
struct AttentionMassProblem {
  const void* q = nullptr;  ///< [B, Hq, Tq, D] of `type`
  int64_t q_strides[4] = {};
  const void* k = nullptr;  ///< [B, Hkv, Tk, D] of `type`
  int64_t k_strides[4] = {};
  ElementType type = ElementType::kFloat32;
  int batch = 0, query_heads = 0, key_heads = 0, queries = 0, keys = 0, width = 0;

  const int64_t* rows = nullptr;     ///< [B, R] contiguous; outside 0..Tq - 1: an unused row
  const int64_t* targets = nullptr;  ///< [target_count]; one that is no key makes its group NaN
  /// [B * R * groups + 1]; a group whose offsets do not ascend within the targets is NaN
  const int64_t* offsets = nullptr;
  int64_t target_count = 0;
  int sampled = 0;  ///< R, any number
  int groups = 0;

  bool is_causal = true;
  float scale = 1;
  float softcap = 0;                   ///< > 0: caps the scaled scores
  int64_t window = 0;                  ///< > 0: sliding window
  const int64_t* documents = nullptr;  ///< [B, T]; nullptr: none
  int64_t document_strides[2] = {};
  const float* sinks = nullptr;  ///< [Hq] contiguous; nullptr: none
  const bool* mask = nullptr;    ///< [B, Hq, Tq, Tk], true: attend; nullptr: none. Not with a bias
  const void* bias = nullptr;    ///< [B, Hq, Tq, Tk] of `bias_type`, added; nullptr: none
  ElementType bias_type = ElementType::kFloat32;
  int64_t bias_strides[4] = {};  ///< of the mask or the bias

  /// [B, Hq, Tq] natural log-sum-exp of the attention that ran, its sink included; nullptr: none.
  /// With it only key 0 and the targets' keys are read, and entropy and largest logit are NaN.
  /// +-inf: every key masked (flash-attention marks such rows with +inf).
  const float* saved_log_sum_exp = nullptr;
  int64_t saved_strides[3] = {};

  int keys_per_split = 0;  ///< 0: from the shape alone, so that no bit depends on the device
};

/// Contiguous, all written; NaN where measure.h says so.
struct AttentionMassOutputs {
  float* mass = nullptr;         ///< [B, Hq, R, groups]
  float* score = nullptr;        ///< [B, Hq, R, groups]
  float* entropy = nullptr;      ///< [B, Hq, R]
  float* max_logit = nullptr;    ///< [B, Hq, R]
  float* log_sum_exp = nullptr;  ///< [B, Hq, R]
  float* first_mass = nullptr;   ///< [B, Hq, R]
};

/// Bytes of workspace that launch_attention_mass() needs for the same arguments: 12 a row and
/// split; 0 with a saved log-sum-exp.
std::size_t attention_mass_workspace_bytes(const AttentionMassProblem& problem);

/// Recomputes the sampled softmax rows and sums them over their target keys.
///
///   L       = ln sum_j exp s_j
///   mass_g  = sum_{j in g} exp(s_j - L)
///   score_g = ln mean_{j in g} exp s_j
///
/// problem    width D = 1..256; positions and offsets are checked on the device, where they lie
/// workspace  16-byte aligned, not to be touched before the launch is over
///
/// Bit-reproducible for equal arguments. Error bound: docs/kernels/attention_mass.md. Cost: 2
/// launches; reads the keys that a row sees once for every 16 rows (query heads that share them
/// find them in the cache); with a saved log-sum-exp 1 launch and D elements a target.
/// kInvalidValue: an extent out of range, Hq no multiple of Hkv, or a workspace that is too small.
Status launch_attention_mass(const AttentionMassProblem& problem, const AttentionMassOutputs& out,
                             void* workspace, std::size_t workspace_bytes, Stream stream);

}  // namespace headscope::kernels
