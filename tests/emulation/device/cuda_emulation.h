#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <source_location>
#include <type_traits>

#include "tests/emulation/device/device_state.h"
#include "tests/emulation/device/number_types.h"
#include "tests/emulation/device/runtime.h"

// CUDA C++ as a plain C++20 compiler understands it: the part of the language that kernels use, by
// CUDA's own names. Included by kernels/device.cuh where nvcc would include CUDA's headers.

// NOLINTBEGIN: names with leading underscores are CUDA's.
#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __restrict__ __restrict

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

using cudaStream_t = struct CUstream_st*;
enum cudaError_t : int {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorInvalidConfiguration = 9,
};
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

// Those of the running thread; rewritten whenever another one goes on.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

using std::max;
using std::min;

#define HEADSCOPE_SHARED(Type, name, extents)                                       \
  static const char headscope_key_##name = 0;                                       \
  auto& name = *static_cast<Type(*) extents>(::headscope::emulation::static_shared( \
      &headscope_key_##name, sizeof(Type extents), alignof(Type), #name))
#define HEADSCOPE_DYNAMIC_SHARED(name) \
  unsigned char* name = ::headscope::emulation::dynamic_shared()
#define HEADSCOPE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  (static_cast<void>(stream),                                            \
   ::headscope::emulation::launch(kernel, grid, block, shared_bytes, __VA_ARGS__))
#define HEADSCOPE_ALLOW_SHARED(kernel, bytes) \
  (::headscope::emulation::allow_shared(reinterpret_cast<const void*>(kernel), bytes), cudaSuccess)

// The caller's place, as a last defaulted parameter.
#define HEADSCOPE_CALLER ::std::source_location caller = ::std::source_location::current()

// ---------------------------------------------------------------- barriers and votes

inline void __syncthreads(HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  block_barrier(BarrierVote::kNone, false, place_of(caller));
}
inline int __syncthreads_count(int predicate, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return block_barrier(BarrierVote::kCount, predicate != 0, place_of(caller));
}
inline int __syncthreads_and(int predicate, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return block_barrier(BarrierVote::kAnd, predicate != 0, place_of(caller));
}
inline int __syncthreads_or(int predicate, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return block_barrier(BarrierVote::kOr, predicate != 0, place_of(caller));
}
inline void __threadfence() { headscope::emulation::fence(); }
inline void __threadfence_block() { headscope::emulation::fence(); }

inline void __syncwarp(unsigned mask = 0xffffffffu, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  warp_operation(WarpOperation::kSyncwarp, mask, {}, place_of(caller));
}
inline unsigned __ballot_sync(unsigned mask, int predicate, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return static_cast<unsigned>(
      warp_operation(WarpOperation::kBallot, mask, {.value = predicate != 0}, place_of(caller)));
}
inline int __any_sync(unsigned mask, int predicate, HEADSCOPE_CALLER) {
  return __ballot_sync(mask, predicate, caller) != 0;
}
inline int __all_sync(unsigned mask, int predicate, HEADSCOPE_CALLER) {
  return __ballot_sync(mask, predicate == 0, caller) == 0;
}

// ---------------------------------------------------------------- shuffles and reductions

namespace headscope::emulation {

template <typename T>
T exchange(WarpOperation operation, unsigned mask, T value, int argument, int width, Place place) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  WarpOperands operands{.argument = argument, .width = width};
  std::memcpy(&operands.value, &value, sizeof value);
  const std::uint64_t result = warp_operation(operation, mask, operands, place);
  std::memcpy(&value, &result, sizeof value);
  return value;
}

template <typename T>
T reduce(WarpOperation operation, unsigned mask, T value, Place place) {
  static_assert(sizeof(T) == 4 && std::is_integral_v<T>);
  return exchange(operation, mask, value, 0, 32, place);
}

}  // namespace headscope::emulation

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return exchange(WarpOperation::kShuffle, mask, value, source, width, place_of(caller));
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return exchange(WarpOperation::kShuffleXor, mask, value, lane_mask, width, place_of(caller));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return exchange(WarpOperation::kShuffleUp, mask, value, static_cast<int>(delta), width,
                  place_of(caller));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return exchange(WarpOperation::kShuffleDown, mask, value, static_cast<int>(delta), width,
                  place_of(caller));
}
template <typename T>
unsigned __match_any_sync(unsigned mask, T value, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return static_cast<unsigned>(exchange(
      WarpOperation::kMatchAny, mask, static_cast<std::uint64_t>(value), 0, 32, place_of(caller)));
}
template <typename T>
T __reduce_add_sync(unsigned mask, T value, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return reduce(WarpOperation::kReduceAdd, mask, value, place_of(caller));
}
template <typename T>
T __reduce_min_sync(unsigned mask, T value, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return reduce(
      std::is_signed_v<T> ? WarpOperation::kReduceMinSigned : WarpOperation::kReduceMinUnsigned,
      mask, value, place_of(caller));
}
template <typename T>
T __reduce_max_sync(unsigned mask, T value, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return reduce(
      std::is_signed_v<T> ? WarpOperation::kReduceMaxSigned : WarpOperation::kReduceMaxUnsigned,
      mask, value, place_of(caller));
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return reduce(WarpOperation::kReduceAnd, mask, value, place_of(caller));
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  return reduce(WarpOperation::kReduceOr, mask, value, place_of(caller));
}

// ---------------------------------------------------------------- atomics

namespace headscope::emulation {

/// A real atomic, so that ThreadSanitizer sees a plain access that races with it.
template <typename T, typename Update>
T atomic_update(T* target, Update update) {
  std::atomic_ref<T> atomic(*target);
  T old = atomic.load(std::memory_order_relaxed);
  while (!atomic.compare_exchange_weak(old, update(old), std::memory_order_relaxed)) {
  }
  return old;
}

}  // namespace headscope::emulation

template <typename T>
T atomicAdd(T* target, std::type_identity_t<T> value) {
  return headscope::emulation::atomic_update(target,
                                             [&](T old) { return static_cast<T>(old + value); });
}
template <typename T>
T atomicMax(T* target, std::type_identity_t<T> value) {
  return headscope::emulation::atomic_update(target, [&](T old) { return std::max(old, value); });
}
template <typename T>
T atomicMin(T* target, std::type_identity_t<T> value) {
  return headscope::emulation::atomic_update(target, [&](T old) { return std::min(old, value); });
}
template <typename T>
T atomicOr(T* target, std::type_identity_t<T> value) {
  return headscope::emulation::atomic_update(target,
                                             [&](T old) { return static_cast<T>(old | value); });
}
template <typename T>
T atomicExch(T* target, std::type_identity_t<T> value) {
  return headscope::emulation::atomic_update(target, [&](T) { return value; });
}
template <typename T>
T atomicCAS(T* target, std::type_identity_t<T> compare, std::type_identity_t<T> value) {
  return headscope::emulation::atomic_update(target,
                                             [&](T old) { return old == compare ? value : old; });
}

// ---------------------------------------------------------------- arithmetic

template <typename T>
T __ldg(const T* pointer) {
  return *pointer;
}
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float rsqrtf(float x) { return 1.f / std::sqrt(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }

// ---------------------------------------------------------------- PTX, as kernels/device.cuh has
// it

inline void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                              const float (&c)[4], HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  MmaFragments fragments{d, a, b, c};
  warp_operation(WarpOperation::kMmaBf16, 0xffffffffu, {.fragment = &fragments}, place_of(caller));
}
inline void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                             const float (&c)[4], HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  MmaFragments fragments{d, a, b, c};
  warp_operation(WarpOperation::kMmaF16, 0xffffffffu, {.fragment = &fragments}, place_of(caller));
}

namespace headscope::emulation {

/// The row is read here, in the caller's instrumented code, so that sanitizers see it.
inline void load_matrix(WarpOperation operation, unsigned (&registers)[4], const void* row,
                        Place place) {
  check_shared(row, 16, "ldmatrix", place);
  LdmatrixFragments fragments;
  const auto* const elements = static_cast<const std::uint16_t*>(row);
  for (int i = 0; i < 8; ++i) fragments.row[i] = elements[i];
  fragments.registers = registers;
  warp_operation(operation, 0xffffffffu, {.fragment = &fragments}, place);
}

}  // namespace headscope::emulation

inline void ldmatrix_x4(unsigned (&r)[4], const void* row, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  load_matrix(WarpOperation::kLdmatrix, r, row, place_of(caller));
}
inline void ldmatrix_x4_trans(unsigned (&r)[4], const void* row, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  load_matrix(WarpOperation::kLdmatrixTransposed, r, row, place_of(caller));
}

// Poison when issued, copy as late as is legal: the poison shows a reader that is still in the
// buffer (a missing barrier before the refill), the late copy a missing wait.
inline void cp_async_16(void* target, const void* source, bool full = true, HEADSCOPE_CALLER) {
  using namespace headscope::emulation;
  check_shared(target, 16, "cp.async", place_of(caller));
  if (reinterpret_cast<std::uintptr_t>(source) % 16 != 0)
    fail("cp.async: the source is not 16-byte aligned", place_of(caller));
  *static_cast<uint4*>(target) = uint4{~0u, ~0u, ~0u, ~0u};
  if (full) static_cast<void>(*static_cast<const volatile unsigned*>(source));
  push_copy({target, source, full});
}
inline void cp_async_commit() { headscope::emulation::commit_copies(); }
template <int kPending>
void cp_async_wait() {
  headscope::emulation::AsyncCopy copy;
  while (headscope::emulation::pop_copy(kPending, copy)) {
    *static_cast<uint4*>(copy.target) =
        copy.full ? *static_cast<const uint4*>(copy.source) : uint4{0, 0, 0, 0};
  }
}
// NOLINTEND
