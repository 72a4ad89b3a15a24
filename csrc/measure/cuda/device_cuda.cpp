#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAStream.h>
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <map>

#include "csrc/measure/cuda/device.h"

namespace headscope::cuda {
namespace {

void check_blas(cublasStatus_t status) {
  TORCH_CHECK(status == CUBLAS_STATUS_SUCCESS,
              "headscope: accumulate_gram_ failed in cuBLAS: ", cublasGetStatusString(status));
}

void check_solver(cusolverStatus_t status) {
  TORCH_CHECK(status == CUSOLVER_STATUS_SUCCESS,
              "headscope: symmetric_eigenvalues failed in cuSOLVER with status ",
              static_cast<int>(status));
}

/// cuSOLVER's parameters of one call.
class SolverParameters {
 public:
  SolverParameters() { check_solver(cusolverDnCreateParams(&value_)); }
  ~SolverParameters() { cusolverDnDestroyParams(value_); }
  SolverParameters(const SolverParameters&) = delete;
  SolverParameters& operator=(const SolverParameters&) = delete;
  cusolverDnParams_t get() const { return value_; }

 private:
  cusolverDnParams_t value_ = nullptr;
};

/// This thread's handle for the current device, on the current stream. An own one: torch keeps its
/// handles in a library that it loads when its own linear algebra is first called.
cusolverDnHandle_t solver_handle(const at::Tensor& tensor) {
  struct Handles {
    std::map<int, cusolverDnHandle_t> of_device;
    ~Handles() {
      // At the process' end the driver may be gone; what fails then has nothing left to free.
      for (const auto& [device, handle] : of_device) cusolverDnDestroy(handle);
    }
  };
  thread_local Handles handles;
  cusolverDnHandle_t& handle = handles.of_device[tensor.device().index()];
  if (handle == nullptr) check_solver(cusolverDnCreate(&handle));
  check_solver(cusolverDnSetStream(handle, current_stream(tensor)));
  return handle;
}

}  // namespace

kernels::Stream current_stream(const at::Tensor& tensor) {
  return c10::cuda::getCurrentCUDAStream(tensor.device().index()).stream();
}

bool is_captured(const at::Tensor& tensor) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  // An error is left for the launch to report.
  return cudaStreamIsCapturing(current_stream(tensor), &status) == cudaSuccess &&
         status != cudaStreamCaptureStatusNone;
}

void check(kernels::Status status, const char* what) {
  TORCH_CHECK(status == 0, "headscope: ", what,
              " failed: ", cudaGetErrorString(static_cast<cudaError_t>(status)));
}

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device) return tensor;
  TORCH_CHECK(!is_captured(at::empty({0}, at::TensorOptions(device))),
              "headscope: attention_mass needs its rows, targets and offsets on ", device,
              " while the stream is captured into a graph");
  return tensor.contiguous().pin_memory().to(device, /*non_blocking=*/true);
}

void add_products(at::Tensor& gram, const at::Tensor& x) {
  const bool is_double = gram.scalar_type() == at::kDouble;
  const cudaDataType_t type = is_double ? CUDA_R_64F : CUDA_R_32F;
  const int width = static_cast<int>(x.size(2)), tokens = static_cast<int>(x.size(1));
  const double one_double = 1;
  const float one_float = 1;
  const void* one = is_double ? static_cast<const void*>(&one_double) : &one_float;
  const int64_t matrix = x.size(1) * x.size(2);
  // Column-major: x [T, D] is x^T there, and the product is symmetric. PEDANTIC: never TF32,
  // whatever the host allows for its own products.
  check_blas(cublasGemmStridedBatchedEx(
      at::cuda::getCurrentCUDABlasHandle(), CUBLAS_OP_N, CUBLAS_OP_T, width, width, tokens, one,
      x.const_data_ptr(), type, width, matrix, x.const_data_ptr(), type, width, matrix, one,
      gram.data_ptr(), type, width, int64_t{width} * width, static_cast<int>(x.size(0)),
      is_double ? CUBLAS_COMPUTE_64F_PEDANTIC : CUBLAS_COMPUTE_32F_PEDANTIC, CUBLAS_GEMM_DEFAULT));
}

at::Tensor solve(at::Tensor& matrices) {
  const int64_t count = matrices.size(0), n = matrices.size(1);
  at::Tensor values = at::empty({count, n}, matrices.options());
  const at::Tensor info = at::empty({count}, matrices.options().dtype(at::kInt));
  const cusolverDnHandle_t handle = solver_handle(matrices);
  const SolverParameters parameters;
  size_t device_bytes = 0, host_bytes = 0;
  // Row-major: its lower triangle is the upper one there.
  check_solver(cusolverDnXsyevBatched_bufferSize(
      handle, parameters.get(), CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_UPPER, n, CUDA_R_64F,
      matrices.const_data_ptr(), n, CUDA_R_64F, values.const_data_ptr(), CUDA_R_64F, &device_bytes,
      &host_bytes, count));
  const auto bytes = [](size_t size, at::TensorOptions options) {
    return at::empty({static_cast<int64_t>(size)}, options.dtype(at::kByte));
  };
  const at::Tensor on_device = bytes(device_bytes, matrices.options());
  const at::Tensor on_host = bytes(host_bytes, at::TensorOptions());
  check_solver(cusolverDnXsyevBatched(
      handle, parameters.get(), CUSOLVER_EIG_MODE_NOVECTOR, CUBLAS_FILL_MODE_UPPER, n, CUDA_R_64F,
      matrices.data_ptr(), n, CUDA_R_64F, values.data_ptr(), CUDA_R_64F, on_device.data_ptr(),
      device_bytes, on_host.data_ptr(), host_bytes, info.data_ptr<int>(), count));
  // A matrix that did not converge says so as NaN.
  return values.masked_fill_(info.ne(0).view({-1, 1}), std::numeric_limits<double>::quiet_NaN());
}

}  // namespace headscope::cuda
