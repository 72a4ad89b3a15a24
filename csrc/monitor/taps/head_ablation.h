#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "headscope/ablation_runner.h"

namespace headscope {

/// What the forwards of an ablation do to the attention outputs z [B, H, T, D] that they meet:
/// replace those of chosen heads, or learn what will replace them. Thread: that of the forwards.
class HeadAblation {
 public:
  HeadAblation(Replacement replacement, AblatedPositions positions)
      : replacement_(replacement), positions_(positions) {}

  // --- before a forward
  /// Learns means and norms of every head, over this forward and the following.
  void learn_means();
  /// Keeps the heads' outputs: what they are given when rows are resampled.
  void learn_rows(const std::vector<HeadId>& heads);
  /// Replaces the heads' outputs.
  ///
  /// rows     [n, T] tokens of the forward
  /// queries  [n, S] the positions of AblatedPositions::kQuery; undefined with kAll
  void replace(const std::vector<HeadId>& heads, const at::Tensor& rows, const at::Tensor& queries);
  /// What was learnt is of another batch.
  void forget_means() { learnt_.clear(); }

  // --- during it
  at::Tensor observe(int64_t layer, const at::Tensor& z);

  // --- after it
  /// Throws std::runtime_error when a chosen head was not replaced (or learnt): its layer did not
  /// report, or z does not fit.
  void check() const;

  /// Heads of each layer that has reported.
  const std::map<int64_t, int64_t>& heads_in() const { return heads_in_; }
  /// Root mean squared norm of a head's output, as learnt; NaN: not learnt.
  double norm(HeadId id) const;

 private:
  enum class Doing { kReplace, kLearnMeans, kLearnRows };
  struct Learnt {
    at::Tensor sum;      // [H, D] f64
    at::Tensor squares;  // [H] f64
    int64_t count = 0;
  };

  void choose(Doing doing, const std::vector<HeadId>& heads);
  void add_to_means(int64_t layer, const at::Tensor& z);
  /// What is wrong with z for the replacement that is wanted; empty: nothing.
  std::string misfit(int64_t layer, const at::Tensor& z) const;
  at::Tensor replaced(int64_t layer, const std::vector<int64_t>& heads, const at::Tensor& z) const;

  const Replacement replacement_;
  const AblatedPositions positions_;
  Doing doing_ = Doing::kReplace;
  std::map<int64_t, std::vector<int64_t>> chosen_;  // heads by layer
  int64_t rows_ = 0, tokens_ = 0;                   // of the forward
  at::Tensor queries_;
  std::map<int64_t, int64_t> heads_in_;
  std::set<int64_t> done_;  // layers, since the last choice
  std::string problem_;
  std::map<int64_t, Learnt> learnt_;
  std::map<int64_t, at::Tensor> others_;  // of a layer's chosen heads, [n, heads, T, D]
};

}  // namespace headscope
