#pragma once

#include <ATen/core/Tensor.h>

#include "headscope/monitor.h"

namespace headscope {

/// One attention call as a call source saw it. Lives as long as the call itself.
struct SeenCall {
  enum class Kind { kSdpa, kEager };
  Kind kind;
  at::Tensor q, k, v, z;  ///< [B, H, T, D] when the heads are known, else as the call had them
  AttentionCall call;
};

/// Who is told of calls; returns what the call is to give: z, or z with heads zeroed.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual at::Tensor seen(SeenCall call) noexcept = 0;
  /// The heads of an eager call whose batch and heads share a dimension: N = B H; 0: not known.
  virtual int64_t heads_of_next(int64_t merged) const noexcept = 0;
};

}  // namespace headscope
