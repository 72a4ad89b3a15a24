#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "csrc/monitor/taps/capture.h"
#include "headscope/measure.h"

namespace headscope {

/// The answers of one attention_mass call as floats on the host, read row by row; doubles lose
/// nothing that the readings keep.
class HostRows {
 public:
  explicit HostRows(const AttentionRows& rows);

  int64_t batch() const { return rows_.mass.size(0); }
  int64_t heads() const { return heads_; }
  int64_t sampled() const { return sampled_; }

  /// Sampled query r of head h in sequence b: its figures, and those of its groups.
  class Row {
   public:
    float mass(int64_t group) const { return of_->mass_[index_ * of_->groups_ + group]; }
    float score(int64_t group) const { return of_->score_[index_ * of_->groups_ + group]; }
    float entropy() const { return of_->entropy_[index_]; }
    float max_logit() const { return of_->max_logit_[index_]; }
    float log_sum_exp() const { return of_->log_sum_exp_[index_]; }
    float first_mass() const { return of_->first_mass_[index_]; }

   private:
    friend class HostRows;
    Row(const HostRows& of, int64_t index) : of_(&of), index_(index) {}
    const HostRows* of_;
    int64_t index_;
  };
  Row row(int64_t b, int64_t h, int64_t r) const {
    return {*this, (b * heads_ + h) * sampled_ + r};
  }

 private:
  AttentionRows rows_;  // f32, contiguous: what the pointers lie in
  int64_t heads_, sampled_, groups_;
  const float *mass_, *score_, *entropy_, *max_logit_, *log_sum_exp_, *first_mass_;
};

/// A group's log-mean-exp over the keys of it that are seen, not over all.
inline float among_seen(float score, int64_t keys, int64_t seen) {
  if (seen == keys || seen == 0) return score;
  return score +
         static_cast<float>(std::log(static_cast<double>(keys) / static_cast<double>(seen)));
}

/// How many keys a layer sees of what one probe chunk asks about.
class SeenKeys {
 public:
  /// Of the last queries, or of the sampled ones.
  static SeenKeys at_last(const LayerCapture& layer, const ProbePlan& plan, size_t chunk);
  static SeenKeys at_queries(const LayerCapture& layer, const QueryPlan& plan, size_t chunk);

  /// Of a group's keys for query r of row n.
  int64_t in_group(int64_t n, int64_t group, int64_t r = 0) const {
    return counts_[static_cast<size_t>((n * sampled_ + r) * groups_ + group)];
  }
  /// The group's keys by the plan, seen or not.
  int64_t asked(int64_t n, int64_t group, int64_t r = 0) const {
    const int64_t* offset =
        offsets_.const_data_ptr<int64_t>() + (n * sampled_ + r) * groups_ + group;
    return offset[1] - offset[0];
  }
  /// Of all keys up to query r of row n.
  int64_t in_row(int64_t n, int64_t r = 0) const {
    return seen_.defined() ? seen_[n][r].sum().item<int64_t>()
                           : rows_.const_data_ptr<int64_t>()[n * sampled_ + r] + 1;
  }

 private:
  SeenKeys(int64_t groups, at::Tensor rows, const at::Tensor& targets, at::Tensor offsets,
           at::Tensor seen);

  int64_t groups_, sampled_;
  at::Tensor rows_;     // [n, R] positions of the queries
  at::Tensor offsets_;  // of the groups
  at::Tensor seen_;     // [n, R, T] bool; undefined: every key is seen
  std::vector<int64_t> counts_;
};

}  // namespace headscope
