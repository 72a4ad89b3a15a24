#include <algorithm>

#include "kernels/attention_mass.cuh"

namespace headscope::kernels {
namespace {

constexpr int kFewestKeysPerSplit = 256;
// Blocks that fill every multiprocessor of today's devices several times over.
constexpr int64_t kWantedBlocks = 1024;
// Positions plus a step of the walk stay far from the end of int.
constexpr int kLongestExtent = 1 << 30;

int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

AttentionSchedule schedule_of(const AttentionMassProblem& in) {
  AttentionSchedule schedule;
  schedule.row_tiles = static_cast<int>(round_up(in.sampled, kTileRows) / kTileRows);
  int64_t keys_per_split = in.keys_per_split;
  if (keys_per_split <= 0) {
    const int64_t blocks = static_cast<int64_t>(in.batch) * in.query_heads * schedule.row_tiles;
    const int64_t wanted = round_up(kWantedBlocks, blocks) / blocks;
    keys_per_split =
        std::max<int64_t>(kFewestKeysPerSplit, round_up(round_up(in.keys, wanted) / wanted, 64));
  }
  schedule.keys_per_split = static_cast<int>(keys_per_split);
  schedule.splits =
      static_cast<int>(std::max<int64_t>(1, round_up(in.keys, keys_per_split) / keys_per_split));
  return schedule;
}

bool is_empty(const AttentionMassProblem& in) {
  return in.batch == 0 || in.query_heads == 0 || in.sampled == 0;
}

bool is_valid(const AttentionMassProblem& in) {
  const auto fits = [](int extent) { return extent >= 0 && extent <= kLongestExtent; };
  const bool extents = fits(in.batch) && fits(in.query_heads) && fits(in.queries) &&
                       fits(in.keys) && fits(in.sampled) && fits(in.groups) && in.width >= 1 &&
                       in.width <= kMaxAttentionWidth;
  const bool heads =
      in.query_heads == 0 || (in.key_heads > 0 && in.query_heads % in.key_heads == 0);
  return extents && heads;
}

/// Whether every vector of a tensor can be read in 16-byte chunks.
bool reads_in_chunks(const void* data, const int64_t (&strides)[4], int width, int element_bytes) {
  int64_t bytes = reinterpret_cast<uintptr_t>(data) | static_cast<int64_t>(width) * element_bytes;
  for (int axis = 0; axis < 3; ++axis) bytes |= strides[axis] * element_bytes;
  return bytes % 16 == 0 && strides[3] == 1;
}

template <typename Tile>
Status launch_stream(const AttentionMassProblem& in, const AttentionSchedule& schedule,
                     RowState* partial, Stream stream) {
  const int64_t blocks =
      static_cast<int64_t>(in.batch) * in.query_heads * schedule.row_tiles * schedule.splits;
  if (blocks > INT32_MAX) return kInvalidValue;
  HEADSCOPE_LAUNCH(attention_stream_kernel<Tile>, dim3(static_cast<unsigned>(blocks)),
                   dim3(32 * kStreamWarps), 0, stream, in, schedule, partial);
  return cudaGetLastError();
}

template <typename Element, bool kVector>
Status launch_stream_by_width(const AttentionMassProblem& in, const AttentionSchedule& schedule,
                              RowState* partial, Stream stream) {
  if constexpr (sizeof(Element) == sizeof(float)) {
    return launch_stream<FmaTile<kVector>>(in, schedule, partial, stream);
  } else if (in.width <= 64) {
    return launch_stream<MmaTile<Element, 64, kVector>>(in, schedule, partial, stream);
  } else if (in.width <= 128) {
    return launch_stream<MmaTile<Element, 128, kVector>>(in, schedule, partial, stream);
  } else {
    return launch_stream<MmaTile<Element, 256, kVector>>(in, schedule, partial, stream);
  }
}

template <typename Element>
Status launch_both(const AttentionMassProblem& in, const AttentionMassOutputs& out,
                   RowState* partial, Stream stream) {
  constexpr int kBytes = sizeof(Element);
  const bool vectorised = reads_in_chunks(in.q, in.q_strides, in.width, kBytes) &&
                          reads_in_chunks(in.k, in.k_strides, in.width, kBytes);
  const AttentionSchedule schedule = schedule_of(in);
  if (in.saved_log_sum_exp == nullptr) {
    const Status status =
        vectorised ? launch_stream_by_width<Element, true>(in, schedule, partial, stream)
                   : launch_stream_by_width<Element, false>(in, schedule, partial, stream);
    if (status != cudaSuccess) return status;
  }
  const int64_t rows = static_cast<int64_t>(in.batch) * in.query_heads * in.sampled;
  const int64_t blocks = round_up(rows, kFinishWarps) / kFinishWarps;
  if (blocks > INT32_MAX) return kInvalidValue;
  HEADSCOPE_LAUNCH(attention_finish_kernel<Element>, dim3(static_cast<unsigned>(blocks)),
                   dim3(32 * kFinishWarps), 0, stream, in, vectorised, schedule, partial, out);
  return cudaGetLastError();
}

}  // namespace

std::size_t attention_mass_workspace_bytes(const AttentionMassProblem& in) {
  if (!is_valid(in) || is_empty(in) || in.saved_log_sum_exp != nullptr) return 0;
  const AttentionSchedule schedule = schedule_of(in);
  return sizeof(RowState) * kTileRows * static_cast<std::size_t>(in.batch) *
         static_cast<std::size_t>(in.query_heads) * static_cast<std::size_t>(schedule.row_tiles) *
         static_cast<std::size_t>(schedule.splits);
}

Status launch_attention_mass(const AttentionMassProblem& in_any, const AttentionMassOutputs& out,
                             void* workspace, std::size_t workspace_bytes, Stream stream) {
  if (!is_valid(in_any)) return kInvalidValue;
  if (is_empty(in_any)) return cudaSuccess;
  if (workspace_bytes < attention_mass_workspace_bytes(in_any)) return kInvalidValue;
  AttentionMassProblem in = in_any;
  // A window as long as the sequence hides nothing, and positions plus it cannot overflow.
  const int64_t longest = std::max(in.queries, in.keys);
  in.window = in.window > 0 ? std::min(in.window, longest) : longest;
  RowState* partial = static_cast<RowState*>(workspace);
  switch (in.type) {
    case ElementType::kBFloat16:
      return launch_both<__nv_bfloat16>(in, out, partial, stream);
    case ElementType::kFloat16:
      return launch_both<__half>(in, out, partial, stream);
    case ElementType::kFloat32:
      return launch_both<float>(in, out, partial, stream);
  }
  return kInvalidValue;
}

}  // namespace headscope::kernels
