#pragma once

#include <cstdint>
#include <vector>

#include "csrc/measure/simd/element.h"

// Softmax rows of sampled queries on raw memory: keys are streamed once for every query head that
// shares them, chunk by chunk, so that the scratch of a thread does not grow with the number of
// keys (docs/kernels/attention_mass.md). Semantics: AttentionCall in headscope/measure.h.
namespace headscope::simd {

/// A [B, H, T, D] tensor read in place; strides in elements.
struct Strided4 {
  const void* data = nullptr;
  int64_t batch = 0, head = 0, token = 0, width = 0;
};

/// What all rows of one call share. Arguments are checked by the caller.
struct RowsCall {
  Element element = Element::kF32;                                   ///< of q, k and v
  int64_t batch = 0, heads = 0, key_heads = 0, keys = 0, width = 0;  ///< B, Hq, Hkv, Tk, D
  Strided4 q, k;
  const int64_t* positions = nullptr;  ///< [B, R] queries, -1: unused
  int64_t sampled = 0;                 ///< R
  bool is_causal = true;
  double scale = 1, softcap = 0;
  int64_t window = 0;  ///< >= 1; whoever has none passes the larger number of tokens
  Strided4 bias = {};  ///< [B, Hq, Tq, Tk], stride 0 where it broadcasts; no data: none
  bool bias_is_bool = false;
  Element bias_element = Element::kF32;
  const int64_t* documents = nullptr;  ///< [B, Tk]
  const double* sinks = nullptr;       ///< [Hq]
};

/// The target groups of a call: all groups of one sampled row together, ascending by key, so that
/// they are picked up while the keys pass by. Shared by all heads and threads; O(targets) memory.
class TargetIndex {
 public:
  struct Entry {
    int32_t key, group;
  };

  /// targets and offsets as in headscope::attention_mass; rows = B R.
  TargetIndex(const int64_t* targets, const int64_t* offsets, int64_t rows, int64_t groups);

  int64_t groups() const { return groups_; }
  /// Entries of sampled row `row` = b R + r.
  const Entry* begin(int64_t row) const;
  const Entry* end(int64_t row) const { return begin(row + 1); }
  int64_t size(int64_t row, int64_t group) const;

 private:
  const int64_t* offsets_;
  int64_t groups_;
  std::vector<Entry> entries_;
};

/// [B, Hq, R, G] and [B, Hq, R], written for used rows only.
template <typename Sum>
struct MassOutputs {
  Sum *mass, *score;
  Sum *entropy, *max_logit, *log_sum_exp, *first_mass;
};

/// Key heads b Hkv + key head, of all sequences.
struct KeyHeads {
  int64_t first = 0, last = 0;
};

/// attention_mass for all query heads of some key heads.
template <typename Sum>
void measure_rows(const RowsCall& call, KeyHeads range, const TargetIndex& targets,
                  const MassOutputs<Sum>& out);

/// recompute_rows likewise; v [B, Hkv, Tk, Dv], out [B, Hq, R, Dv] written for rows with a key to
/// see.
template <typename Sum>
void output_rows(const RowsCall& call, KeyHeads range, const Strided4& v, int64_t value_width,
                 Sum* out);

/// Bytes of scratch that one thread holds at a time: at most 64 KB while D and value_width <= 256
/// (value_width 0: measure_rows), whatever the number of keys.
template <typename Sum>
int64_t rows_scratch_bytes(const RowsCall& call, int64_t value_width);

}  // namespace headscope::simd
