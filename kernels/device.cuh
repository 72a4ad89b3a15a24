#pragma once

// The one header that kernels include. Under nvcc it is CUDA with wrappers around PTX; under a
// plain C++ compiler the same names come from the emulation, which stands in for CUDA's headers and
// is on the include path of the emulated tests only (docs/kernels/emulation.md).
//
// A kernel stays emulable when it
//   declares shared memory with HEADSCOPE_SHARED / HEADSCOPE_DYNAMIC_SHARED,
//   launches with HEADSCOPE_LAUNCH, raises its shared memory with HEADSCOPE_ALLOW_SHARED,
//   and uses PTX only through the functions below.

#if !defined(__CUDACC__)
#include <cuda_emulation.h>
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

// `float* name` or any array: HEADSCOPE_SHARED(float, row_sum, [4][16]);
#define HEADSCOPE_SHARED(Type, name, extents) __shared__ Type name extents

// `unsigned char* name`, 128-byte aligned, the block's dynamic shared memory.
#define HEADSCOPE_DYNAMIC_SHARED(name)                                       \
  extern __shared__ __align__(128) unsigned char headscope_dynamic_shared[]; \
  unsigned char* name = headscope_dynamic_shared

// Launches kernel(arguments...). A kernel with commas in its template arguments goes in
// parentheses.
#define HEADSCOPE_LAUNCH(kernel, grid, block, shared_bytes, stream, ...) \
  kernel<<<grid, block, shared_bytes, stream>>>(__VA_ARGS__)

// Needed before a launch with more than 48 KB of shared memory; a cudaError_t.
#define HEADSCOPE_ALLOW_SHARED(kernel, bytes)                 \
  cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), \
                       cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// d = a b + c with a [16, 16], b [16, 8], c and d [16, 8]; fragments as in the PTX manual. With g =
// lane / 4, t = 2 (lane % 4): a = {a[g][t..], a[g+8][t..], a[g][t+8..], a[g+8][t+8..]},
// b = {b[t..][g], b[t+8..][g]}, c = {c[g][t], c[g][t+1], c[g+8][t], c[g+8][t+1]}.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], const unsigned (&a)[4],
                                                  const unsigned (&b)[2], const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};\n"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const unsigned (&a)[4],
                                                 const unsigned (&b)[2], const float (&c)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%11,%12,%13};\n"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]),
        "f"(c[2]), "f"(c[3]));
}

// Four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8 (16
// bytes, 16-byte aligned, shared memory). Lane l receives elements t, t+1 of row g of matrix k in
// r[k]; _trans: elements g of rows t, t+1.
__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];\n"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// Copies 16 bytes from global to shared memory without waiting, or writes zeros when not `full`
// (then `source` is not read, yet must be a valid address).
__device__ __forceinline__ void cp_async_16(void* target, const void* source, bool full = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared_address(target)),
               "l"(source), "r"(full ? 16 : 0)
               : "memory");
}
// Closes the group of copies issued since the last commit; may be empty.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;\n" ::: "memory");
}
// Waits until at most kPending of this thread's latest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

#endif
