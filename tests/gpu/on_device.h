#pragma once

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <gtest/gtest.h>

#include <limits>

// A machine without a GPU skips visibly.
#define HEADSCOPE_NEED_GPU() \
  if (!at::cuda::is_available()) GTEST_SKIP() << "no CUDA device on this machine"

namespace headscope::testing {

/// The same values in the same layout on the GPU: strides and the NaN around the elements are kept.
inline at::Tensor on_device(const at::Tensor& host) {
  const auto options = host.options().device(at::kCUDA);
  if (host.numel() == 0) return at::empty(host.sizes(), options);
  int64_t extent = 1;
  std::vector<int64_t> distinct(host.sizes().begin(), host.sizes().end());
  for (int64_t i = 0; i < host.dim(); ++i) {
    extent += (host.size(i) - 1) * host.stride(i);
    if (host.stride(i) == 0) distinct[static_cast<size_t>(i)] = 1;  // written once
  }
  at::Tensor storage = host.is_floating_point()
                           ? at::full({extent}, std::numeric_limits<double>::quiet_NaN(), options)
                           : at::zeros({extent}, options);
  at::Tensor source = host;
  for (int64_t i = 0; i < host.dim(); ++i)
    source = source.narrow(i, 0, distinct[static_cast<size_t>(i)]);
  storage.as_strided(distinct, host.strides()).copy_(source);
  return storage.as_strided(host.sizes(), host.strides());
}

}  // namespace headscope::testing
