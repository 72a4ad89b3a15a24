#pragma once

#include "kernels/device.cuh"

// Kernels that are wrong on purpose: what the emulation must say of each is in emulation_test.cpp.
namespace headscope::emulation::misuse {

__global__ inline void divergent_barrier(int* out) {
  if (threadIdx.x < 16) {
    __syncthreads();
    out[threadIdx.x] = 1;
  } else {
    out[threadIdx.x] = 2;
    __syncthreads();
  }
}

__global__ inline void exit_before_barrier(int* out) {
  if (threadIdx.x >= 32) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ inline void deadlock(int* out) {
  if (threadIdx.x % 32 < 16) {
    __syncwarp();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ inline void half_of_a_shuffle(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x % 2 == 1) value = __shfl_xor_sync(0xffffffffu, value, 1);
  out[threadIdx.x] = value + __shfl_xor_sync(0xffffffffu, value, 2);
}

__global__ inline void mismatched_masks(int* out) {
  out[threadIdx.x] = threadIdx.x < 16 ? __any_sync(0xffffffffu, 1) : __any_sync(0xffff0000u, 1);
}

__global__ inline void not_in_its_mask(int* out) { out[threadIdx.x] = __any_sync(0x0000ffffu, 1); }

__global__ inline void shuffle_from_outside(int* out) {
  int value = static_cast<int>(threadIdx.x);
  if (threadIdx.x < 16) value = __shfl_xor_sync(0x0000ffffu, value, 16);
  out[threadIdx.x] = value;
}

__global__ inline void misaligned_ldmatrix(float* out) {
  HEADSCOPE_SHARED(float, values, [64]);
  values[threadIdx.x] = 0;
  unsigned registers[4];
  ldmatrix_x4(registers, values + 1);
  out[threadIdx.x] = static_cast<float>(registers[0]);
}

__global__ inline void ldmatrix_from_global(float* out) {
  unsigned registers[4];
  ldmatrix_x4(registers, out);
  out[threadIdx.x] = static_cast<float>(registers[0]);
}

__global__ inline void mma_by_half_a_warp(float* out) {
  if (threadIdx.x >= 16) return;
  float sum[4] = {0, 0, 0, 0};
  const unsigned a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
  mma_m16n8k16_bf16(sum, a, b, sum);
  out[threadIdx.x] = sum[0];
}

__global__ inline void forgotten_copy(float* out, const float* in) {
  HEADSCOPE_SHARED(float, values, [4]);
  cp_async_16(values, in);
  cp_async_commit();
  out[0] = 0;
}

__global__ inline void read_before_the_wait(float* out, const float* in) {
  HEADSCOPE_SHARED(float, values, [4]);
  cp_async_16(values, in);
  cp_async_commit();
  out[0] = values[0];
  cp_async_wait<0>();
}

__global__ inline void uninitialised_shared(float* out) {
  HEADSCOPE_SHARED(float, values, [64]);
  if (threadIdx.x < 32) values[threadIdx.x] = 1.f;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x + 1];
}

__global__ inline void missing_barrier(float* out) {
  HEADSCOPE_SHARED(float, values, [128]);
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  out[threadIdx.x] = values[(threadIdx.x + 32) % 128];
}

__global__ inline void missing_second_barrier(float* out) {
  HEADSCOPE_SHARED(float, values, [64]);
  float sum = 0;
  for (int i = 1; i <= 4; ++i) {
    values[threadIdx.x] = static_cast<float>(i);
    __syncthreads();
    sum += values[(threadIdx.x + 32) % 64];
  }
  out[threadIdx.x] = sum;
}

__global__ inline void blocks_race(float* out) { out[threadIdx.x] += 1.f; }

__global__ inline void static_shared_overrun(float* out, int beyond) {
  HEADSCOPE_SHARED(float, values, [32]);
  values[threadIdx.x] = 1.f;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x + static_cast<unsigned>(beyond)];
}

__global__ inline void dynamic_shared_overrun(float* out, int beyond) {
  HEADSCOPE_DYNAMIC_SHARED(shared);
  auto* const values = reinterpret_cast<float*>(shared);
  values[threadIdx.x + static_cast<unsigned>(beyond)] = 1.f;
  __syncthreads();
  out[threadIdx.x] = values[threadIdx.x];
}

__global__ inline void global_overrun(float* out, int beyond) {
  out[threadIdx.x + static_cast<unsigned>(beyond)] = 1.f;
}

}  // namespace headscope::emulation::misuse
