#include "csrc/measure/simd/symmetric_eigenvalues.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <optional>
#include <vector>

#include "csrc/measure/cpu/symmetric_eigenvalues.h"
#include "csrc/measure/entry_points.h"
#include "csrc/measure/one_core.h"

namespace headscope::cpu {
namespace {

std::atomic<int64_t> fallbacks{0};

/// LAPACK in f64, of finite matrices [count, n, n]. Scaling by the largest entry keeps 1e300 and
/// denormals inside what the solver can square.
at::Tensor lapack_eigenvalues(const at::Tensor& matrices) {
  const at::Tensor work = matrices.to(at::kDouble);
  const at::Tensor largest = work.abs().flatten(1).amax(1);
  const at::Tensor scale = at::where(largest > 0, largest, at::ones({}, work.options()));
  return at::linalg_eigvalsh(work / scale.view({-1, 1, 1}), "L") * scale.view({-1, 1});
}

/// Orders beyond the kernel's. LAPACK raises on NaN and may not end on Inf: such matrices are
/// swapped for zeros and their result for NaN.
at::Tensor large_eigenvalues(const at::Tensor& matrices) {
  const at::Tensor finite = matrices.isfinite().flatten(1).all(1);
  at::Tensor values = lapack_eigenvalues(
      at::where(finite.view({-1, 1, 1}), matrices, at::zeros({}, matrices.options())));
  return values.masked_fill_(finite.logical_not().view({-1, 1}),
                             std::numeric_limits<double>::quiet_NaN());
}

/// Returns when `done`, or after 100 us. A caller that slept until the last thread is done would be
/// woken up tens of microseconds late, in a call that takes hundreds.
template <typename Done>
void wait_awake(Done&& done) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(100);
  while (!done() && std::chrono::steady_clock::now() < end) {
  }
}

template <typename T>
at::Tensor small_eigenvalues(const at::Tensor& matrices, int64_t max_sweeps) {
  const int64_t count = matrices.size(0), n = matrices.size(1), grain = simd::eigenvalue_grain();
  at::Tensor values = at::empty({count, n}, matrices.options().dtype(at::kDouble));
  std::vector<simd::SolveState> states(static_cast<size_t>(count));
  const T* source = matrices.const_data_ptr<T>();
  double* out = values.data_ptr<double>();
  const auto solve = [&](int64_t first, int64_t last) {
    simd::symmetric_eigenvalues(source + first * n * n, last - first, n, max_sweeps,
                                out + first * n, states.data() + first);
  };
  const int64_t threads =
      measure::OneCore::active() || at::in_parallel_region()
          ? 1
          : std::min<int64_t>(at::get_num_threads(), (count + grain - 1) / grain);
  if (threads == 1) {
    solve(0, count);
  } else {
    // Whoever is free takes the next part: as few as are equally many for all threads, larger ones
    // first. Their ends split no group, but where groups do not divide among the threads. A
    // matrix's bits do not depend on which it shares a part with.
    const int64_t lanes = simd::eigenvalue_lanes(),
                  unit = (count + lanes - 1) / lanes % threads == 0 ? lanes
                                                                    : simd::eigenvalue_column(),
                  units = (count + unit - 1) / unit;
    const int64_t parts = threads * ((count + grain * threads - 1) / (grain * threads));
    const auto begin_of = [&](int64_t part) {
      return std::min(count, (part * (units / parts) + std::min(part, units % parts)) * unit);
    };
    std::atomic<int64_t> taken{0}, solved{0};
    at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
      for (int64_t part; (part = taken.fetch_add(1, std::memory_order_relaxed)) < parts;) {
        solve(begin_of(part), begin_of(part + 1));
        ++solved;
      }
      if (at::get_thread_num() == 0) wait_awake([&] { return solved.load() == parts; });
    });
  }
  for (int64_t m = 0; m < count; ++m) {
    if (states[static_cast<size_t>(m)] != simd::SolveState::kNotConverged) continue;
    values[m].copy_(lapack_eigenvalues(matrices.narrow(0, m, 1)).squeeze(0));
    fallbacks.fetch_add(1, std::memory_order_relaxed);
  }
  return values;
}

}  // namespace

int64_t eigenvalue_fallbacks() { return fallbacks.load(std::memory_order_relaxed); }

at::Tensor symmetric_eigenvalues(const at::Tensor& matrices, std::optional<int64_t> max_sweeps) {
  const int64_t n = matrices.size(-1);
  const auto out_sizes = matrices.sizes().slice(0, matrices.dim() - 1);
  if (matrices.numel() == 0) return at::empty(out_sizes, matrices.options().dtype(at::kDouble));
  const at::Tensor work = matrices.reshape({-1, n, n}).contiguous();
  if (n > simd::kMaxOrder) return large_eigenvalues(work).reshape(out_sizes);
  const int64_t sweeps = max_sweeps.value_or(simd::sweep_limit(n));
  const at::Tensor values = work.scalar_type() == at::kFloat
                                ? small_eigenvalues<float>(work, sweeps)
                                : small_eigenvalues<double>(work, sweeps);
  return values.reshape(out_sizes);
}

at::Tensor EntryPoints::symmetric_eigenvalues(const at::Tensor& matrices) {
  return cpu::symmetric_eigenvalues(matrices, std::nullopt);
}

}  // namespace headscope::cpu
