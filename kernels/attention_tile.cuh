#pragma once

#include "kernels/attention_score.cuh"

// Dot products of 16 query rows with tiles of 8 keys, one warp a tile. Lane l loads chunks of key
// l / 4 straight from global memory: four lanes cover 64 bytes of it, so that every sector fetched
// is used, and a dot product does not mind in which order its terms come.
namespace headscope::kernels {

inline constexpr int kTileRows = 16;
inline constexpr int kTileKeys = 8;

__device__ inline void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                const __nv_bfloat16*) {
  mma_m16n8k16_bf16(d, a, b, d);
}
__device__ inline void multiply(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                const __half*) {
  mma_m16n8k16_f16(d, a, b, d);
}

/// 16-bit elements on tensor cores. A lane's chunk of eight dimensions serves as two fragments: the
/// MMA's dimensions 2t, 2t+1, 2t+8, 2t+9 of lane t are elements 0..3 of the chunk in a first step
/// and 4..7 in a second, for queries and keys alike.
template <typename Type, int kWidth, bool kVector>
struct MmaTile {
  using Element = Type;
  static constexpr int kSlots = 2;  // query rows of which a lane holds scores
  // Tiles of one step, whose loads are in flight together; one where registers are short.
  static constexpr int kTiles = kVector && kWidth <= 128 ? 2 : 1;
  // Blocks a multiprocessor is to hold: what the registers of queries and loads leave room for.
  static constexpr int kMinBlocks = kWidth <= 64 ? 5 : kVector && kWidth <= 128 ? 4 : 2;
  static constexpr int kSlabs = kWidth / 32;
  static constexpr int kRowLanes = 1;  // lanes l, l ^ 1, l ^ 2 hold scores of the same rows
  static constexpr int kRowLanesEnd = 4;

  uint4 query[kSlabs][2];

  __device__ static int row(int lane, int slot) { return lane / 4 + 8 * slot; }
  __device__ static int slot(int score) { return score / 2; }
  __device__ static int key(int lane, int score) { return 2 * (lane % 4) + score % 2; }

  __device__ void load_queries(const AttentionMassProblem& in, int b, int h,
                               const int (&positions)[kSlots], int) {
    const int part = static_cast<int>(threadIdx.x) % 4;
#pragma unroll
    for (int slot = 0; slot < kSlots; ++slot) {
      const Element* vector = query_pointer<Element>(in, b, h, max(positions[slot], 0));
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        query[slab][slot] = load_chunk<kVector>(vector, in.q_strides[3], 32 * slab + 8 * part,
                                                positions[slot] < 0 ? 0 : in.width);
      }
    }
  }

  /// keys[u]: the key that this lane loads of tile u, null: none.
  __device__ void dots(const AttentionMassProblem& in, const Element* const (&keys)[kTiles],
                       float (&out)[kTiles][4]) const {
    const int part = static_cast<int>(threadIdx.x) % 4;
    uint4 chunk[kTiles][kSlabs];
#pragma unroll
    for (int u = 0; u < kTiles; ++u) {
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        chunk[u][slab] = load_chunk<kVector>(keys[u], in.k_strides[3], 32 * slab + 8 * part,
                                             keys[u] == nullptr ? 0 : in.width);
      }
    }
#pragma unroll
    for (int u = 0; u < kTiles; ++u) {
      out[u][0] = out[u][1] = out[u][2] = out[u][3] = 0;
#pragma unroll
      for (int slab = 0; slab < kSlabs; ++slab) {
        const uint4 &low = query[slab][0], &high = query[slab][1], &k = chunk[u][slab];
        const unsigned a_first[4] = {low.x, high.x, low.y, high.y}, b_first[2] = {k.x, k.y};
        const unsigned a_second[4] = {low.z, high.z, low.w, high.w}, b_second[2] = {k.z, k.w};
        multiply(out[u], a_first, b_first, static_cast<const Element*>(nullptr));
        multiply(out[u], a_second, b_second, static_cast<const Element*>(nullptr));
      }
    }
  }
};

/// f32 by FMA: a lane multiplies its quarter of a key's dimensions with all 16 queries (in shared
/// memory), then four lanes add up and keep four rows each.
template <bool kVector>
struct FmaTile {
  using Element = float;
  static constexpr int kSlots = 4;
  static constexpr int kTiles = 1;
  static constexpr int kMinBlocks = 4;
  static constexpr int kRowLanes = 4;  // lanes l ^ 4, l ^ 8, l ^ 16 hold scores of the same rows
  static constexpr int kRowLanesEnd = 32;
  static constexpr int kMaxWidth = 256;

  const float* query;

  __device__ static int row(int lane, int slot) { return 4 * (lane % 4) + slot; }
  __device__ static int slot(int score) { return score; }
  __device__ static int key(int lane, int) { return lane / 4; }

  /// Element of the shared queries. Four lanes read dimensions 4 apart at once: the padding puts
  /// them in different banks.
  __device__ static int shared_index(int d, int row) { return d * kTileRows + d / 4 * 4 + row; }

  __device__ void load_queries(const AttentionMassProblem& in, int b, int h, const int (&)[kSlots],
                               int first_row) {
    HEADSCOPE_SHARED(float4, storage, [(kMaxWidth * kTileRows + kMaxWidth) / 4]);
    float* shared = reinterpret_cast<float*>(&storage[0]);
    const int padded = (in.width + 15) / 16 * 16;
    for (int i = static_cast<int>(threadIdx.x); i < kTileRows * padded;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / padded, d = i % padded;
      const int position = query_row(in, b, h, first_row + row).position;
      const bool is_there = position >= 0 && d < in.width;
      shared[shared_index(d, row)] =
          is_there ? query_pointer<float>(in, b, h, position)[d * in.q_strides[3]] : 0;
    }
    __syncthreads();
    query = shared;
  }

  __device__ void dots(const AttentionMassProblem& in, const float* const (&keys)[1],
                       float (&out)[1][4]) const {
    const int part = static_cast<int>(threadIdx.x) % 4;
    float sums[kTileRows];
#pragma unroll
    for (int row = 0; row < kTileRows; ++row) sums[row] = 0;
    for (int d = 4 * part; keys[0] != nullptr && d < in.width; d += 16) {
      const uint4 chunk = load_chunk<kVector>(keys[0], in.k_strides[3], d, in.width);
      const float k[4] = {__uint_as_float(chunk.x), __uint_as_float(chunk.y),
                          __uint_as_float(chunk.z), __uint_as_float(chunk.w)};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int row = 0; row < kTileRows; row += 4) {
          const float4 q = *reinterpret_cast<const float4*>(query + shared_index(d + i, row));
          sums[row] += q.x * k[i];
          sums[row + 1] += q.y * k[i];
          sums[row + 2] += q.z * k[i];
          sums[row + 3] += q.w * k[i];
        }
      }
    }
    // Lanes 2, 3 take rows 8..15 and give the others away; then the odd ones the upper half of
    // what is left.
    const bool upper = part >= 2, odd = part % 2 == 1;
    float half[kTileRows / 2];
#pragma unroll
    for (int i = 0; i < kTileRows / 2; ++i) {
      const float given = __shfl_xor_sync(kAllLanes, upper ? sums[i] : sums[i + 8], 2);
      half[i] = (upper ? sums[i + 8] : sums[i]) + given;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float given = __shfl_xor_sync(kAllLanes, odd ? half[i] : half[i + 4], 1);
      out[0][i] = (odd ? half[i + 4] : half[i]) + given;
    }
  }
};

}  // namespace headscope::kernels
