#pragma once

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

/// How many keys of one probe chunk a layer sees.
class SeenKeys {
 public:
  SeenKeys(const LayerCapture& layer, const ProbePlan& plan, size_t chunk);

  /// Of a group's keys in row n.
  int64_t in_group(int64_t n, int64_t group) const {
    return counts_[static_cast<size_t>(n * groups_ + group)];
  }
  /// Of all keys of row n.
  int64_t in_row(int64_t n) const {
    return seen_.defined() ? seen_[n].sum().item<int64_t>() : context_;
  }

 private:
  int64_t groups_, context_;
  at::Tensor seen_;  // [n, 1, T] bool; undefined: every key is seen
  std::vector<int64_t> counts_;
};

}  // namespace headscope
