#pragma once

#include "kernels/device.cuh"
#include "kernels/launch.h"

// What a query row sees and the score it gives to a key: shared by the pass over all keys and by
// the pass over the targets, so that both agree on every rule.
namespace headscope::kernels {

inline constexpr unsigned kAllLanes = 0xffffffffu;

/// Sums of one softmax row over some of its keys. A score that has no softmax (NaN, +inf) turns
/// `sum` into NaN for good.
struct RowState {
  float max;       // largest score
  float sum;       // of exp(s - max); 0: no key seen
  float weighted;  // of exp(s - max)(s - max)

  __device__ void add(float score) {
    if (score == -INFINITY) return;
    if (!(score < INFINITY)) {
      sum = NAN;
    } else if (score > max) {
      if (sum != 0) {
        const float shift = max - score, factor = __expf(shift);
        weighted = factor * (weighted + sum * shift);
        sum *= factor;
      }
      sum += 1;
      max = score;
    } else {
      const float weight = __expf(score - max);
      sum += weight;
      weighted += weight * (score - max);
    }
  }

  __device__ void merge(const RowState& other) {
    if (other.sum == 0) return;
    if (sum == 0) {
      *this = other;
      return;
    }
    const float top = fmaxf(max, other.max);
    const float own_factor = __expf(max - top), other_factor = __expf(other.max - top);
    weighted = own_factor * (weighted + sum * (max - top)) +
               other_factor * (other.weighted + other.sum * (other.max - top));
    sum = own_factor * sum + other_factor * other.sum;
    max = top;
  }
};

__device__ inline RowState empty_row() { return {-INFINITY, 0, 0}; }

/// The state of the lane whose number differs by `distance` in its bits.
__device__ inline RowState across_lanes(const RowState& state, int distance) {
  return {__shfl_xor_sync(kAllLanes, state.max, distance),
          __shfl_xor_sync(kAllLanes, state.sum, distance),
          __shfl_xor_sync(kAllLanes, state.weighted, distance)};
}

/// A sampled query row and the rules for what it sees. Unused: position -1, no keys.
struct QueryRow {
  int position;
  int first_key, end_key;  // bounds by causality and window
  int64_t document;
  int64_t
      bias_start;  // element of the bias that of mask or bias that belongs to this row and key 0
};

__device__ inline QueryRow query_row(const AttentionMassProblem& in, int b, int h, int r) {
  QueryRow row = {-1, 0, 0, 0, 0};
  if (r >= in.sampled) return row;
  const int64_t t = in.rows[static_cast<int64_t>(b) * in.sampled + r];
  if (t < 0 || t >= in.queries) return row;
  row.position = static_cast<int>(t);
  const int64_t end = in.is_causal ? t + 1 : t + in.window;
  row.end_key = static_cast<int>(min(end, static_cast<int64_t>(in.keys)));
  row.first_key = static_cast<int>(max(t + 1 - in.window, static_cast<int64_t>(0)));
  if (in.documents != nullptr)
    row.document = in.documents[b * in.document_strides[0] + t * in.document_strides[1]];
  if (in.mask != nullptr || in.bias != nullptr)
    row.bias_start = b * in.bias_strides[0] + h * in.bias_strides[1] + t * in.bias_strides[2];
  return row;
}

/// Whether the row attends to the key at all; an additive bias of -inf shows in the score instead.
__device__ inline bool sees(const AttentionMassProblem& in, const QueryRow& row, int b, int key) {
  if (key < row.first_key || key >= row.end_key) return false;
  if (in.documents != nullptr &&
      in.documents[b * in.document_strides[0] + key * in.document_strides[1]] != row.document)
    return false;
  return in.mask == nullptr || in.mask[row.bias_start + key * in.bias_strides[3]];
}

/// From the dot product of a seen key to the pre-softmax score.
__device__ inline float score_of_dot(const AttentionMassProblem& in, const QueryRow& row, int key,
                                     float dot) {
  float score = dot * in.scale;
  if (in.softcap > 0) score = in.softcap * tanhf(score / in.softcap);
  if (in.bias == nullptr) return score;
  const int64_t element = row.bias_start + key * in.bias_strides[3];
  switch (in.bias_type) {
    case ElementType::kFloat32:
      return score + static_cast<const float*>(in.bias)[element];
    case ElementType::kBFloat16:
      return score + __bfloat162float(static_cast<const __nv_bfloat16*>(in.bias)[element]);
    case ElementType::kFloat16:
      return score + __half2float(static_cast<const __half*>(in.bias)[element]);
  }
  return score;
}

template <typename Element>
__device__ const Element* query_pointer(const AttentionMassProblem& in, int b, int h, int t) {
  return static_cast<const Element*>(in.q) + b * in.q_strides[0] + h * in.q_strides[1] +
         t * in.q_strides[2];
}

/// Keys of the head that query head h reads, key 0 first.
template <typename Element>
__device__ const Element* key_pointer(const AttentionMassProblem& in, int b, int h) {
  return static_cast<const Element*>(in.k) + b * in.k_strides[0] +
         (h / (in.query_heads / in.key_heads)) * in.k_strides[1];
}

/// Elements of a 16-byte chunk.
template <typename Element>
inline constexpr int kChunk = 16 / static_cast<int>(sizeof(Element));

/// Elements d .. d + kChunk of a vector as their bits, zero from `width` on. kVector: unit stride,
/// 16-byte aligned, width a multiple of the chunk.
template <bool kVector>
__device__ inline uint4 load_chunk(const float* vector, int64_t step, int d, int width) {
  if (kVector)
    return d < width ? *reinterpret_cast<const uint4*>(vector + d) : make_uint4(0, 0, 0, 0);
  const auto element = [&](int i) {
    return d + i < width ? __float_as_uint(vector[(d + i) * step]) : 0u;
  };
  return make_uint4(element(0), element(1), element(2), element(3));
}

template <bool kVector, typename Half>
__device__ inline uint4 load_chunk(const Half* vector, int64_t step, int d, int width) {
  if (kVector)
    return d < width ? *reinterpret_cast<const uint4*>(vector + d) : make_uint4(0, 0, 0, 0);
  const auto element = [&](int i) -> unsigned {
    return d + i < width ? *reinterpret_cast<const uint16_t*>(vector + (d + i) * step) : 0u;
  };
  const auto pair = [&](int i) { return element(i) | element(i + 1) << 16; };
  return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

/// One word of a chunk as numbers, multiplied into a running dot product.
__device__ inline float multiply_word(unsigned a, unsigned b, float sum, const float*) {
  return sum + __uint_as_float(a) * __uint_as_float(b);
}
__device__ inline float multiply_word(unsigned a, unsigned b, float sum, const __nv_bfloat16*) {
  sum += __uint_as_float(a << 16) * __uint_as_float(b << 16);
  return sum + __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u);
}
__device__ inline float multiply_word(unsigned a, unsigned b, float sum, const __half*) {
  const auto low = [](unsigned word) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word)));
  };
  sum += low(a) * low(b);
  return sum + low(a >> 16) * low(b >> 16);
}

/// Dot product of two vectors shared by four neighbouring lanes; all 32 lanes of a warp call it,
/// eight pairs of vectors at a time. A null key gives 0.
template <typename Element>
__device__ float quad_dot(const AttentionMassProblem& in, bool vectorised, const Element* query,
                          const Element* key) {
  const int part = static_cast<int>(threadIdx.x) % 4;
  float sum = 0;
  for (int d = part * kChunk<Element>; key != nullptr && d < in.width; d += 4 * kChunk<Element>) {
    const uint4 a = vectorised ? load_chunk<true>(query, 1, d, in.width)
                               : load_chunk<false>(query, in.q_strides[3], d, in.width);
    const uint4 b = vectorised ? load_chunk<true>(key, 1, d, in.width)
                               : load_chunk<false>(key, in.k_strides[3], d, in.width);
    sum = multiply_word(a.x, b.x, sum, query);
    sum = multiply_word(a.y, b.y, sum, query);
    sum = multiply_word(a.z, b.z, sum, query);
    sum = multiply_word(a.w, b.w, sum, query);
  }
  sum += __shfl_xor_sync(kAllLanes, sum, 1);
  return sum + __shfl_xor_sync(kAllLanes, sum, 2);
}

}  // namespace headscope::kernels
