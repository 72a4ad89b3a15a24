#include <algorithm>
#include <cstdint>

#include "kernels/gram.cuh"

namespace headscope::kernels {
namespace {

// Enough blocks of D = 64 for one wave of a large GPU (132 multiprocessors, 8 blocks each); wider
// ones have more threads. A constant, so that the bits do not depend on the device.
constexpr int kBlocksTimesWidth = 1056 * 64;
constexpr int kTokenMultiple = 32;     // of every tile's tokens
constexpr int64_t kMaxRows = 1 << 30;  // of a problem: sums of two stay in range

int64_t rows_of(const GramProblem& problem) {
  return static_cast<int64_t>(problem.batch) * problem.tokens;
}

bool is_empty(const GramProblem& problem) { return problem.heads == 0 || rows_of(problem) == 0; }

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

int padded_width(int width) {
  for (const int padded : {16, 32, 64, 96, 128}) {
    if (width <= padded) return padded;
  }
  return kMaxGramWidth;
}

/// Floats of a block's sums: GramLayout::kPartial.
std::size_t partial_floats(int padded) {
  const auto width = static_cast<std::size_t>(padded);
  return (width / 32 + 1) * 8 * width * 2 + width;
}

template <typename Element>
bool is_vectorised(const GramProblem& problem, int width) {
  constexpr int64_t kVector = 16 / sizeof(Element);
  return problem.z_width_stride == 1 && width % kVector == 0 &&
         reinterpret_cast<std::uintptr_t>(problem.z) % 16 == 0 &&
         problem.z_batch_stride % kVector == 0 && problem.z_head_stride % kVector == 0 &&
         problem.z_token_stride % kVector == 0;
}

/// Fills `group` with the next problems that are not empty; returns how many it looked at.
int plan_group(const GramProblem* problems, int problem_count, int width,
               int least_tokens_per_block, GramGroup& group) {
  int64_t head_tokens = 0;
  int looked_at = 0;
  group.problem_count = 0;
  group.width = width;
  for (; looked_at < problem_count && group.problem_count < kMaxGrouped; ++looked_at) {
    const GramProblem& problem = problems[looked_at];
    if (is_empty(problem)) continue;
    group.problems[group.problem_count++] = problem;
    head_tokens += rows_of(problem) * problem.heads;
  }
  const int64_t target = kBlocksTimesWidth / padded_width(width);
  const int64_t share =
      std::max<int64_t>((head_tokens + target - 1) / target, least_tokens_per_block);
  group.tokens_per_block =
      static_cast<int>(std::min<int64_t>(round_up(share, kTokenMultiple), kMaxRows));
  group.first_block[0] = group.first_head[0] = 0;
  for (int i = 0; i < group.problem_count; ++i) {
    const GramProblem& problem = group.problems[i];
    const auto splits =
        static_cast<int>((rows_of(problem) + group.tokens_per_block - 1) / group.tokens_per_block);
    group.first_block[i + 1] = group.first_block[i] + splits * problem.heads;
    group.first_head[i + 1] = group.first_head[i] + problem.heads;
  }
  return looked_at;
}

template <typename Tile>
Status launch_tile(const GramGroup& group, Stream stream) {
  if constexpr (Tile::kSharedBytes > 48 * 1024) {
    const Status status = HEADSCOPE_ALLOW_SHARED(gram_kernel<Tile>, Tile::kSharedBytes);
    if (status != cudaSuccess) return status;
  }
  HEADSCOPE_LAUNCH(gram_kernel<Tile>, dim3(group.first_block[group.problem_count] * Tile::kPasses),
                   dim3(Tile::kThreads), Tile::kSharedBytes, stream, group);
  const Status status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  HEADSCOPE_LAUNCH(gram_reduce_kernel<GramLayout<Tile::kWidth>>,
                   dim3(group.first_head[group.problem_count]), dim3(kReduceThreads), 0, stream,
                   group);
  return cudaGetLastError();
}

template <typename Element, int kParts>
Status launch_width(GramGroup& group, Stream stream) {
  for (int i = 0; i < group.problem_count; ++i)
    group.is_vectorised[i] = is_vectorised<Element>(group.problems[i], group.width);
  switch (padded_width(group.width)) {
    case 16:
      return launch_tile<GramTile<Element, 16, kParts>>(group, stream);
    case 32:
      return launch_tile<GramTile<Element, 32, kParts>>(group, stream);
    case 64:
      return launch_tile<GramTile<Element, 64, kParts>>(group, stream);
    case 96:
      return launch_tile<GramTile<Element, 96, kParts>>(group, stream);
    case 128:
      return launch_tile<GramTile<Element, 128, kParts>>(group, stream);
    default:
      return launch_tile<GramTile<Element, 256, kParts>>(group, stream);
  }
}

Status launch_group(GramGroup& group, ElementType type, Stream stream) {
  bool is_shifted = false;
  for (int i = 0; i < group.problem_count; ++i)
    is_shifted = is_shifted || group.problems[i].shift != nullptr;
  switch (type) {
    case ElementType::kBFloat16:
      return is_shifted ? launch_width<__nv_bfloat16, 2>(group, stream)
                        : launch_width<__nv_bfloat16, 1>(group, stream);
    case ElementType::kFloat16:
      return is_shifted ? launch_width<__half, 2>(group, stream)
                        : launch_width<__half, 1>(group, stream);
    case ElementType::kFloat32:
      return launch_width<float, 3>(group, stream);
  }
  return kInvalidValue;
}

bool is_valid(const GramProblem* problems, int problem_count, int width) {
  if (width < 1 || width > kMaxGramWidth || problem_count < 0) return false;
  for (int i = 0; i < problem_count; ++i) {
    const GramProblem& problem = problems[i];
    if (problem.batch < 0 || problem.heads < 0 || problem.tokens < 0 || rows_of(problem) > kMaxRows)
      return false;
  }
  return true;
}

}  // namespace

std::size_t gram_workspace_bytes(const GramProblem* problems, int problem_count, int width,
                                 int least_tokens_per_block) {
  if (!is_valid(problems, problem_count, width)) return 0;
  std::size_t bytes = 0;
  GramGroup group;
  for (int done = 0; done < problem_count;) {
    done += plan_group(problems + done, problem_count - done, width, least_tokens_per_block, group);
    const auto blocks = static_cast<std::size_t>(group.first_block[group.problem_count]);
    const std::size_t wanted = blocks * partial_floats(padded_width(width)) * sizeof(float);
    bytes = wanted > bytes ? wanted : bytes;
  }
  return bytes;
}

Status launch_gram(const GramProblem* problems, int problem_count, int width, ElementType type,
                   void* workspace, std::size_t workspace_bytes, Stream stream,
                   int least_tokens_per_block) {
  if (!is_valid(problems, problem_count, width) ||
      workspace_bytes <
          gram_workspace_bytes(problems, problem_count, width, least_tokens_per_block))
    return kInvalidValue;
  GramGroup group;
  group.partials = static_cast<float*>(workspace);
  for (int done = 0; done < problem_count;) {
    done += plan_group(problems + done, problem_count - done, width, least_tokens_per_block, group);
    if (group.problem_count == 0) continue;
    const Status status = launch_group(group, type, stream);
    if (status != cudaSuccess) return status;
  }
  return 0;
}

}  // namespace headscope::kernels
