#pragma once

#include "kernels/attention_tile.cuh"

// Two passes: blocks walk the keys in splits and leave the softmax sums of 16 rows each; then a
// warp a row adds up the splits and scores its target keys. With a saved log-sum-exp only the
// second runs. docs/kernels/attention_mass.md walks through.
namespace headscope::kernels {

inline constexpr int kStreamWarps = 4;
inline constexpr int kFinishWarps = 4;
inline constexpr int kFinishBlocks = 4;  // a multiprocessor: 128 registers a thread

/// How the keys are cut up; from the shape alone.
struct AttentionSchedule {
  int row_tiles;  // of 16 sampled rows
  int splits;     // of the keys
  int keys_per_split;
};

/// Where the sums of (b, h, tile, split) begin, 16 rows each.
__device__ inline int64_t partial_index(const AttentionMassProblem& in,
                                        const AttentionSchedule& schedule, int b, int h, int tile,
                                        int split) {
  const int64_t head = static_cast<int64_t>(b) * in.query_heads + h;
  return ((head * schedule.row_tiles + tile) * schedule.splits + split) * kTileRows;
}

/// What one block of the first pass works on. Blocks that read the same keys are neighbours, so
/// that query heads sharing a key head find its keys in the L2 cache.
struct StreamBlock {
  int b, h, tile, split;
};

__device__ inline StreamBlock stream_block(const AttentionMassProblem& in,
                                           const AttentionSchedule& schedule) {
  const int sharing = in.query_heads / in.key_heads;
  int64_t index = blockIdx.x;
  const auto next = [&](int extent) {
    const int digit = static_cast<int>(index % extent);
    index /= extent;
    return digit;
  };
  StreamBlock block;
  block.tile = next(schedule.row_tiles);
  block.h = next(sharing);
  block.split = next(schedule.splits);
  block.h += next(in.key_heads) * sharing;
  block.b = static_cast<int>(index);
  return block;
}

/// First pass: sums of 16 rows over one split of the keys.
template <typename Tile>
__global__ void __launch_bounds__(32 * kStreamWarps, Tile::kMinBlocks)
    attention_stream_kernel(AttentionMassProblem in, AttentionSchedule schedule,
                            RowState* partial) {
  using Element = typename Tile::Element;
  constexpr int kStep = Tile::kTiles * kTileKeys;
  HEADSCOPE_SHARED(RowState, warp_states, [kStreamWarps][kTileRows]);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const StreamBlock block = stream_block(in, schedule);
  const int b = block.b;

  QueryRow rows[Tile::kSlots];
  int positions[Tile::kSlots];
  RowState states[Tile::kSlots];
  int first = in.keys, end = 0;
#pragma unroll
  for (int slot = 0; slot < Tile::kSlots; ++slot) {
    rows[slot] = query_row(in, b, block.h, block.tile * kTileRows + Tile::row(lane, slot));
    positions[slot] = rows[slot].position;
    states[slot] = empty_row();
    if (positions[slot] >= 0) first = min(first, rows[slot].first_key);
    end = max(end, rows[slot].end_key);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    first = min(first, __shfl_xor_sync(kAllLanes, first, distance));
    end = max(end, __shfl_xor_sync(kAllLanes, end, distance));
  }
  // Only keys of this split that some row may see.
  const int64_t split_first = static_cast<int64_t>(block.split) * schedule.keys_per_split;
  first = max(first, static_cast<int>(split_first));
  end = static_cast<int>(min(static_cast<int64_t>(end), split_first + schedule.keys_per_split));

  Tile tile;
  tile.load_queries(in, b, block.h, positions, block.tile * kTileRows);
  const Element* keys = key_pointer<Element>(in, b, block.h);
  for (int start = first + warp * kStep; start < end; start += kStreamWarps * kStep) {
    unsigned seen = 0;  // bit 4 u + i: score i of tile u
#pragma unroll
    for (int i = 0; i < 4 * Tile::kTiles; ++i) {
      const int key = start + i / 4 * kTileKeys + Tile::key(lane, i % 4);
      if (key < end && sees(in, rows[Tile::slot(i % 4)], b, key)) seen |= 1u << i;
    }
    if (!__any_sync(kAllLanes, seen != 0)) continue;
    const Element* loads[Tile::kTiles];
#pragma unroll
    for (int u = 0; u < Tile::kTiles; ++u) {
      const int key = start + u * kTileKeys + lane / 4;
      loads[u] = key < end ? keys + key * in.k_strides[2] : nullptr;
    }
    float dots[Tile::kTiles][4];
    tile.dots(in, loads, dots);
#pragma unroll
    for (int i = 0; i < 4 * Tile::kTiles; ++i) {
      if ((seen >> i & 1) == 0) continue;
      const int slot = Tile::slot(i % 4);
      const int key = start + i / 4 * kTileKeys + Tile::key(lane, i % 4);
      states[slot].add(score_of_dot(in, rows[slot], key, dots[i / 4][i % 4]));
    }
  }

#pragma unroll
  for (int slot = 0; slot < Tile::kSlots; ++slot) {
#pragma unroll
    for (int distance = Tile::kRowLanes; distance < Tile::kRowLanesEnd; distance *= 2)
      states[slot].merge(across_lanes(states[slot], distance));
    if ((lane & (Tile::kRowLanesEnd - Tile::kRowLanes)) == 0)
      warp_states[warp][Tile::row(lane, slot)] = states[slot];
  }
  __syncthreads();
  if (threadIdx.x < kTileRows) {
    RowState total = warp_states[0][threadIdx.x];
    for (int w = 1; w < kStreamWarps; ++w) total.merge(warp_states[w][threadIdx.x]);
    partial[partial_index(in, schedule, b, block.h, block.tile, block.split) + threadIdx.x] = total;
  }
}

/// What the second pass knows of a row's softmax before it looks at targets.
struct RowSoftmax {
  float max_logit, entropy, log_sum_exp;
};

/// Adds the splits up in a fixed order and lets the sink in. All lanes get the same answer.
__device__ inline RowSoftmax combine_splits(const AttentionMassProblem& in,
                                            const AttentionSchedule& schedule,
                                            const RowState* partial, int b, int h, int r) {
  const RowState* own =
      partial + partial_index(in, schedule, b, h, r / kTileRows, 0) + r % kTileRows;
  RowState state = empty_row();
  for (int split = static_cast<int>(threadIdx.x) % 32; split < schedule.splits; split += 32)
    state.merge(own[static_cast<int64_t>(split) * kTileRows]);
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) state.merge(across_lanes(state, distance));
  state = {__shfl_sync(kAllLanes, state.max, 0), __shfl_sync(kAllLanes, state.sum, 0),
           __shfl_sync(kAllLanes, state.weighted, 0)};
  if (state.sum == 0) return {NAN, NAN, -INFINITY};
  const float max_logit = state.max;
  if (in.sinks != nullptr) state.add(in.sinks[h]);
  const float log_sum = logf(state.sum), entropy = log_sum - state.weighted / state.sum;
  return {max_logit, entropy < 0 ? 0 : entropy, state.max + log_sum};
}

__device__ inline RowSoftmax saved_softmax(const AttentionMassProblem& in, int b, int h, int t) {
  const float saved = in.saved_log_sum_exp[b * in.saved_strides[0] + h * in.saved_strides[1] +
                                           t * in.saved_strides[2]];
  return {NAN, NAN, fabsf(saved) == INFINITY ? -INFINITY : saved};
}

/// A mass computed from a score that rounds apart from the sum's own may exceed 1 by rounding.
__device__ inline float at_most_one(float mass) { return mass > 1 ? 1 : mass; }

/// The second pass's view of one row: a warp, eight target keys at a time.
template <typename Element>
struct TargetScorer {
  const AttentionMassProblem& in;
  bool vectorised;
  int b;
  QueryRow row;
  const Element *query, *keys;

  /// Score of this lane's key (four neighbouring lanes share one); -inf: unseen. All lanes call.
  __device__ float operator()(int64_t key) const {
    const bool seen = key >= 0 && key < in.keys && sees(in, row, b, static_cast<int>(key));
    const float dot =
        quad_dot(in, vectorised, query, seen ? keys + key * in.k_strides[2] : nullptr);
    return seen ? score_of_dot(in, row, static_cast<int>(key), dot) : -INFINITY;
  }

  /// Sums over targets [begin, end); NaN where a position is no key.
  __device__ RowState group(int64_t begin, int64_t end) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    RowState state = empty_row();
    for (int64_t base = begin; base < end; base += 8) {
      const int64_t i = base + lane / 4;
      const int64_t key = i < end ? in.targets[i] : -1;
      const float score = (*this)(key);
      if (i < end) state.add(key >= 0 && key < in.keys ? score : NAN);
    }
#pragma unroll
    for (int distance = 4; distance < 32; distance *= 2) state.merge(across_lanes(state, distance));
    return state;
  }
};

/// Second pass, one warp a row: softmax sums, then targets.
template <typename Element>
__global__ void __launch_bounds__(32 * kFinishWarps, kFinishBlocks)
    attention_finish_kernel(AttentionMassProblem in, bool vectorised, AttentionSchedule schedule,
                            const RowState* partial, AttentionMassOutputs out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kFinishWarps + threadIdx.x / 32;
  if (index >= static_cast<int64_t>(in.batch) * in.query_heads * in.sampled) return;
  const int r = static_cast<int>(index % in.sampled);
  const int h = static_cast<int>(index / in.sampled % in.query_heads);
  const int b = static_cast<int>(index / in.sampled / in.query_heads);
  const QueryRow row = query_row(in, b, h, r);

  RowSoftmax softmax = {NAN, NAN, NAN};
  if (row.position >= 0) {
    softmax = in.saved_log_sum_exp != nullptr ? saved_softmax(in, b, h, row.position)
                                              : combine_splits(in, schedule, partial, b, h, r);
  }
  const bool has_softmax = fabsf(softmax.log_sum_exp) < INFINITY;
  const TargetScorer<Element> score_of = {in,
                                          vectorised,
                                          b,
                                          row,
                                          query_pointer<Element>(in, b, h, max(row.position, 0)),
                                          key_pointer<Element>(in, b, h)};
  const float first_score = has_softmax ? score_of(0) : NAN;
  if (lane == 0) {
    out.log_sum_exp[index] = softmax.log_sum_exp;
    out.max_logit[index] = has_softmax ? softmax.max_logit : NAN;
    out.entropy[index] = has_softmax ? softmax.entropy : NAN;
    out.first_mass[index] = at_most_one(expf(first_score - softmax.log_sum_exp));
  }
  for (int g = 0; g < in.groups; ++g) {
    const int64_t* offset = in.offsets + (static_cast<int64_t>(b) * in.sampled + r) * in.groups + g;
    const int64_t begin = offset[0], end = offset[1];
    float mass = NAN, score = NAN;
    if (has_softmax && begin >= 0 && begin <= end && end <= in.target_count) {
      const RowState state = score_of.group(begin, end);
      const bool any = state.sum != 0;
      mass = any ? at_most_one(state.sum * expf(state.max - softmax.log_sum_exp)) : 0;
      score = any ? state.max + logf(state.sum / static_cast<float>(end - begin)) : -INFINITY;
    }
    if (lane == 0) {
      out.mass[index * in.groups + g] = mass;
      out.score[index * in.groups + g] = score;
    }
  }
}

}  // namespace headscope::kernels
