#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "headscope/screen_runner.h"

namespace headscope {

/// Rows of a screen and where they are asked.
struct AskedRows {
  std::string batch;   ///< to_string(ScreenBatch), or "own"
  at::Tensor tokens;   ///< [N, T] i64
  at::Tensor queries;  ///< [N, R] i64, in [1, T)
  /// [N] position of the planted or first natural T, what the reference's screens go by; empty: the
  /// batch has none.
  std::vector<int64_t> first = {};
  std::vector<Pattern> patterns;  ///< what they are asked about

  int64_t context() const { return tokens.size(1); }
  int64_t asked() const { return queries.numel(); }
};

/// Draws the rows of a batch, asked about the request's patterns (the probe's without any); number:
/// how often this batch was drawn before, each time with another seed. probe: resolved(). Throws
/// std::invalid_argument naming value and fix.
AskedRows asked_rows(ScreenBatch batch, const ScreenRequest& request, const ProbeOptions& probe,
                     uint32_t number);
/// The rows that a pattern brings. Likewise.
AskedRows own_rows(const ScreenPattern& own, const ProbeOptions& probe);

/// Targets and controls of the rows, one entry for each query, row by row. Standard patterns are no
/// controls, asked about or not.
ScreenRows screen_rows(const AskedRows& rows, ScreenControls controls);
/// What is left of them where the queries see `seen` [N * R, T] alone: a row whose targets are not
/// all seen does not count for the pattern.
ScreenRows seen_rows(ScreenRows rows, const at::Tensor& seen);
/// 1 + harmonic mean of the keys before a query, of which it sees the last `window` (0: all).
int64_t span_of(const ScreenRows& rows, int64_t window);

}  // namespace headscope
