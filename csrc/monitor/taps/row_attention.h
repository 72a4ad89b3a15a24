#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "csrc/monitor/taps/capture.h"
#include "csrc/monitor/taps/tapped_call.h"

namespace headscope {

/// What the forwards of a screen leave behind: every head's attention on all keys from chosen
/// queries, and the spectrum of its output there. Thread: that of the forwards.
class RowAttention {
 public:
  struct Layer {
    at::Tensor weights;  ///< [H, N * R, T] f32, on the CPU
    at::Tensor seen;     ///< [N * R, T] bool, keys that the queries see; undefined: all
  };

  /// queries  [N, R] of the rows
  RowAttention(at::Tensor queries, int64_t context);

  // --- before a forward
  /// The next forward is of rows [begin, begin + count); random: of as many random ones, of which
  /// the spectrum alone is taken.
  void expect(int64_t begin, int64_t count, bool random);

  // --- during it
  void take(const TappedCall& tapped);

  // --- after it
  /// Throws std::runtime_error when a call could not be measured, or a layer has not reported.
  void check() const;

  const std::map<int64_t, Layer>& layers() const { return layers_; }
  /// Spectra of the rows, and of the random ones.
  const Capture& spectra() const { return spectra_; }

 private:
  void keep(const TappedCall& tapped);

  const at::Tensor queries_;
  const int64_t context_;
  int64_t begin_ = 0, count_ = 0;
  bool random_ = false;
  std::set<int64_t> done_;  // layers of this forward: one that runs twice counts once
  std::string problem_;
  std::map<int64_t, Layer> layers_;
  Capture spectra_;
};

}  // namespace headscope
