#include "kernels/symmetric_eigenvalues.cuh"

namespace headscope::kernels {
namespace {

template <int kCapacity>
Status launch_groups(const EigenvalueGroups& groups, int matrices, int n,
                     const EigenvalueOutputs& out, Stream stream) {
  const unsigned shared_bytes = eigenvalue_shared_bytes(n);
  if (kCapacity == kMaxEigenvalueRows) {
    const Status allowed = HEADSCOPE_ALLOW_SHARED(symmetric_eigenvalues_kernel<kCapacity>,
                                                  eigenvalue_shared_bytes(kCapacity));
    if (allowed != cudaSuccess) return allowed;
  }
  HEADSCOPE_LAUNCH(symmetric_eigenvalues_kernel<kCapacity>, dim3(static_cast<unsigned>(matrices)),
                   dim3(EigenvalueShape<kCapacity>::kThreads), shared_bytes, stream, groups, n,
                   out);
  return cudaGetLastError();
}

Status launch_by_capacity(const EigenvalueGroups& groups, int matrices, int n,
                          const EigenvalueOutputs& out, Stream stream) {
  if (n <= 32) return launch_groups<32>(groups, matrices, n, out, stream);
  if (n <= 64) return launch_groups<64>(groups, matrices, n, out, stream);
  if (n <= 128) return launch_groups<128>(groups, matrices, n, out, stream);
  return launch_groups<256>(groups, matrices, n, out, stream);
}

/// The outputs from matrix `first` on.
EigenvalueOutputs advance(const EigenvalueOutputs& out, int64_t first, int n) {
  return {out.eigenvalues + first * n, out.trace == nullptr ? nullptr : out.trace + first,
          out.squared_norm == nullptr ? nullptr : out.squared_norm + first,
          out.is_finite == nullptr ? nullptr : out.is_finite + first};
}

}  // namespace

Status launch_symmetric_eigenvalues(const EigenvalueGroup* groups, int group_count, int n,
                                    const EigenvalueOutputs& out, Stream stream) {
  if (n < 0 || n > kMaxEigenvalueRows || group_count < 0) return kInvalidValue;
  int64_t total = 0;
  for (int i = 0; i < group_count; ++i) {
    if (groups[i].count < 0 || groups[i].row_stride < n) return kInvalidValue;
    total += groups[i].count;
  }
  if (total > INT32_MAX) return kInvalidValue;
  if (total == 0 || n == 0) return cudaSuccess;

  int64_t done = 0;
  for (int first = 0; first < group_count; first += kMaxEigenvalueGroups) {
    EigenvalueGroups chunk = {};
    int matrices = 0;
    for (int i = 0; i < kMaxEigenvalueGroups && first + i < group_count; ++i) {
      chunk.group[i] = groups[first + i];
      matrices += groups[first + i].count;
    }
    if (matrices == 0) continue;
    const Status status = launch_by_capacity(chunk, matrices, n, advance(out, done, n), stream);
    if (status != cudaSuccess) return status;
    done += matrices;
  }
  return cudaSuccess;
}

}  // namespace headscope::kernels
