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
///   gram[h] += sum_n (z_n - c)(z_n - c)^T,   sum[h] += sum_n (z_n - c),   c = shift[h], n over
///   kept (b, t)
///
/// problems  each layer's own extents and strides; width D = 1..256 and type are common to all
/// workspace 16-byte aligned, not to be touched before the launch is over
/// Bit-reproducible for equal arguments. A problem with B, T or H = 0 is left alone. Error bound:
/// docs/kernels/gram.md. Cost: reads z once; 2 launches for every 32 problems; D^2 T B H FLOP
/// without a shift, 4 times that with one in any of the problems, 6 times for f32.
/// kInvalidValue: width, an extent below 0, B T > 2^30, or a workspace that is too small.
Status launch_gram(const GramProblem* problems, int problem_count, int width, ElementType type,
                   void* workspace, std::size_t workspace_bytes, Stream stream,
                   int least_tokens_per_block = kGramTokensPerBlock);

}  // namespace headscope::kernels
