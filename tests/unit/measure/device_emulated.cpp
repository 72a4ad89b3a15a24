// csrc/measure/cuda over the emulated device: its memory is the host's and its one stream runs at
// once.

#include <ATen/ATen.h>

#include "csrc/measure/cuda/device.h"

namespace headscope::cuda {

kernels::Stream current_stream(const at::Tensor&) { return nullptr; }

bool is_captured(const at::Tensor&) { return false; }

void check(kernels::Status status, const char* what) {
  TORCH_CHECK(status == 0, "headscope: ", what, " failed with status ", status);
}

at::Tensor to_device(const at::Tensor& tensor, at::Device) { return tensor; }

void add_products(at::Tensor& gram, const at::Tensor& x) { gram.baddbmm_(x.transpose(1, 2), x); }

at::Tensor solve(at::Tensor& matrices) { return at::linalg_eigvalsh(matrices, "L"); }

}  // namespace headscope::cuda
