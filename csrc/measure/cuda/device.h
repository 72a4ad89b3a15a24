#pragma once

#include <ATen/core/Tensor.h>

#include "kernels/launch.h"

// The few places where csrc/measure/cuda speaks of CUDA itself. The tests have a second body over
// the emulation, whose device memory is host memory.
namespace headscope::cuda {

/// The current stream of the tensor's device.
kernels::Stream current_stream(const at::Tensor& tensor);

/// Whether that stream is being captured into a graph.
bool is_captured(const at::Tensor& tensor);

/// Throws c10::Error "headscope: <what> failed: <why>" unless status is 0. A CUDA error that has
/// nothing to do with the launch (an earlier asynchronous one) is reported too, not swallowed.
void check(kernels::Status status, const char* what);

/// A copy on `device`, enqueued from pinned memory; the tensor itself when it is there already.
/// Throws while the device's stream is captured into a graph: the copy would be replayed from
/// memory that is no longer ours.
at::Tensor to_device(const at::Tensor& tensor, at::Device device);

/// gram [H, D, D] += x^T x of x [H, T, D], contiguous, both f32 or both f64; never in TF32.
void add_products(at::Tensor& gram, const at::Tensor& x);

/// Ascending eigenvalues [N, n] f64 of finite matrices [N, n, n] f64; destroys its argument.
at::Tensor solve(at::Tensor& matrices);

}  // namespace headscope::cuda
