#pragma once

#include <cstdint>
#include <limits>

#include "csrc/measure/simd/element.h"

// The vectorised steps of the attention rows, on the widest vectors of the CPU at hand; the order
// in which they run is attention_mass.cpp's (docs/kernels/attention_mass.md).
namespace headscope::simd {

/// Vectors of no target hold more sums than this.
inline constexpr int64_t kMostLanes = 16;

/// Softmax sums of one vector's columns of scores, seen a chunk at a time: about the largest score
/// so far, rescaled when it grows. A row that has a vector to itself has its sums in column 0.
template <typename Sum>
struct OnlineSoftmax {
  Sum max[kMostLanes];
  double total[kMostLanes];     ///< sum exp(s - max)
  double weighted[kMostLanes];  ///< sum exp(s - max) (s - max)
  bool broken[kMostLanes];      ///< a score was NaN or +inf: there is no softmax

  void reset() {
    for (int64_t c = 0; c < kMostLanes; ++c) {
      max[c] = -std::numeric_limits<Sum>::infinity();
      total[c] = weighted[c] = 0;
      broken[c] = false;
    }
  }
};

/// The kernels of one SIMD target. Strides in elements.
template <typename Sum>
struct AttentionKernels {
  /// Sums in one vector: query rows of a panel, and columns of an OnlineSoftmax.
  int64_t lanes;

  /// target[i * padded_width + j] = source[i * token_stride + j * width_stride], widened, for
  /// i < rows; columns from width to padded_width are zero. `after` more rows may be prefetched.
  void (*widen_rows)(const void* source, Element element, int64_t token_stride,
                     int64_t width_stride, int64_t rows, int64_t after, int64_t width,
                     int64_t padded_width, Sum* target);

  /// scores[j * lanes + l] = scale sum_i keys[j * token_stride + i] queries[i * lanes + l]: a panel
  /// of query rows, one a lane, against `count` keys. Error: (D + 1) eps of the magnitude.
  void (*score_panel)(const Sum* keys, int64_t token_stride, int64_t count, const Sum* queries,
                      int64_t width, Sum scale, Sum* scores);

  /// scores[j] = scale sum_i keys[j * token_stride + i] query[i]: one query row against `count`
  /// keys. width: a multiple of lanes; `after` more keys may be prefetched.
  void (*score_line)(const Sum* keys, int64_t token_stride, int64_t count, int64_t after,
                     const Sum* query, int64_t width, Sum scale, Sum* scores);

  /// scores[i] = softcap tanh(scores[i] / softcap) for i < count, rounded up to whole vectors.
  void (*cap_scores)(Sum* scores, int64_t count, Sum softcap);

  /// scores[j * lanes + l] = -inf unless first[l] <= j < last[l], for j < count.
  void (*hide_outside)(Sum* scores, int64_t count, const Sum* first, const Sum* last);

  /// Adds scores[step * lanes + column] for step < steps to the sums of each column; is_one_row:
  /// all of them to those of column 0. Relative error of a total: (steps + 4) eps a call, and
  /// double between calls. next: memory to prefetch meanwhile, or null.
  void (*absorb)(OnlineSoftmax<Sum>& softmax, const Sum* scores, int64_t steps, bool is_one_row,
                 const Sum* next);

  /// scores[step * lanes + column] becomes exp(itself - about[column]), about: at least as large.
  void (*weigh)(Sum* scores, int64_t steps, const Sum* about);

  /// row[i] += weight value[i] for i < width, in double.
  void (*add_weighted)(const Sum* value, double weight, int64_t width, double* row);
};

/// The kernels for this CPU; Sum is float or double.
template <typename Sum>
const AttentionKernels<Sum>& attention_kernels();

}  // namespace headscope::simd
