#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "headscope/measure.h"

namespace headscope {

/// One attention call as a tap was shown it (Monitor::observe); the caller's, for the call alone.
struct TappedCall {
  int64_t layer;
  const at::Tensor& q;
  const at::Tensor& k;
  const at::Tensor& v;
  const at::Tensor& z;
  const AttentionCall& call;

  bool empty() const { return q.numel() == 0 || z.numel() == 0; }
};

}  // namespace headscope
