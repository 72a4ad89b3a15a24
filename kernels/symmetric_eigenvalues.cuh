#pragma once

#include "kernels/device.cuh"
#include "kernels/launch.h"

// Eigenvalues of symmetric matrices, one block a matrix: Householder tridiagonalisation in shared
// memory, then multisection by Sturm counts. docs/kernels/symmetric_eigenvalues.md walks through.
namespace headscope::kernels {

/// Block shape for matrices of up to kCapacity rows. kLanes threads share a row (and later an
/// eigenvalue): small matrices are bound by latency and take four, large ones by arithmetic.
template <int kCapacity>
struct EigenvalueShape {
  static constexpr int kLanes = kCapacity <= 64 ? 4 : 2;
  static constexpr int kThreads = kCapacity * kLanes;
  // Rounds that narrow an interval at least 2^26 times: (kLanes + 1)^kRounds >= 2^26.
  static constexpr int kRounds = kLanes == 4 ? 12 : 17;
};

/// Where row t of a packed lower triangle begins. Triangular numbers of 32 consecutive rows are
/// distinct modulo 32, so a warp reads a column without bank conflicts and without padding.
__host__ __device__ constexpr int triangle(int row) { return row * (row + 1) / 2; }

/// Dynamic shared memory of one block, bytes: the triangle, two vectors of pairs.
constexpr unsigned eigenvalue_shared_bytes(int n) {
  const int triangle_floats = (triangle(n) + 3) / 4 * 4;
  return static_cast<unsigned>(sizeof(float)) * static_cast<unsigned>(triangle_floats + 3 * n);
}

/// A row squared length below this (entries are scaled to at most 1) is taken for zero: it moves no
/// eigenvalue by more than 1e-12, and 2 / (v.v) stays far from overflow.
inline constexpr float kNegligibleSquare = 1e-24f;

/// Pivots of the Sturm sequence are kept this far from zero: squares of off-diagonal entries are at
/// most 256^2, so that a quotient stays finite.
inline constexpr float kSmallestPivot = 1e-30f;

__device__ inline float sum_over_warp(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  return value;
}

inline constexpr int kMaxEigenvalueGroups = 32;

/// What one launch takes; goes to the device by value.
struct EigenvalueGroups {
  EigenvalueGroup group[kMaxEigenvalueGroups];
};

/// The matrix of one block.
struct MatrixView {
  const float* data;
  int64_t row_stride;
};

__device__ inline MatrixView matrix_of_block(const EigenvalueGroups& groups, int index) {
  int group = 0;
  while (index >= groups.group[group].count) index -= groups.group[group++].count;
  const EigenvalueGroup& own = groups.group[group];
  return {own.matrices + index * own.matrix_stride, own.row_stride};
}

/// What the whole block knows of its matrix after loading it.
struct LoadedMatrix {
  int exponent;  // stored entries are the matrix's times 2^-exponent; at most 1 in magnitude
  bool is_finite;
};

/// Copies the lower triangle to shared memory, scales it by a power of two and sums trace and
/// squared Frobenius norm (of the scaled matrix, in double). All threads get the same answer.
template <int kThreads>
__device__ LoadedMatrix load_triangle(MatrixView matrix, int n, float* packed, double* trace,
                                      double* square) {
  constexpr int kWarps = kThreads / 32;
  HEADSCOPE_SHARED(unsigned, largest_bits, [kWarps]);
  HEADSCOPE_SHARED(double, warp_trace, [kWarps]);
  HEADSCOPE_SHARED(double, warp_square, [kWarps]);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // Magnitudes compare as their bits do, with Inf and NaN above every finite number.
  unsigned bits = 0;
  for (int row = warp; row < n; row += kWarps) {
    for (int column = lane; column <= row; column += 32) {
      const float value = matrix.data[row * matrix.row_stride + column];
      packed[triangle(row) + column] = value;
      bits = max(bits, __float_as_uint(value) & 0x7fffffffu);
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2)
    bits = max(bits, __shfl_xor_sync(0xffffffffu, bits, distance));
  if (lane == 0) largest_bits[warp] = bits;
  __syncthreads();
  for (int w = 0; w < kWarps; ++w) bits = max(bits, largest_bits[w]);
  LoadedMatrix loaded = {0, bits < 0x7f800000u};
  if (!loaded.is_finite) return loaded;
  frexpf(__uint_as_float(bits), &loaded.exponent);

  double diagonal = 0, squares = 0;
  for (int row = warp; row < n; row += kWarps) {
    for (int column = lane; column <= row; column += 32) {
      const float value = ldexpf(packed[triangle(row) + column], -loaded.exponent);
      packed[triangle(row) + column] = value;
      const double exact = static_cast<double>(value);
      if (row == column) diagonal += exact;
      squares += (row == column ? 1.0 : 2.0) * exact * exact;
    }
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    diagonal += __shfl_xor_sync(0xffffffffu, diagonal, distance);
    squares += __shfl_xor_sync(0xffffffffu, squares, distance);
  }
  if (lane == 0) {
    warp_trace[warp] = diagonal;
    warp_square[warp] = squares;
  }
  __syncthreads();
  *trace = *square = 0;
  for (int w = 0; w < kWarps; ++w) {
    *trace += warp_trace[w];
    *square += warp_square[w];
  }
  return loaded;
}

/// The reflector I - beta v v^T that zeroes column k below its subdiagonal: v is the column below
/// the diagonal with its head (row k + 1) replaced.
struct Reflector {
  float head, beta, subdiagonal;
};

/// Every warp computes it for itself from the shared column: cheaper than a block reduction.
__device__ inline Reflector reflector_of_column(const float* packed, int n, int k) {
  float square = 0;
  for (int j = k + 2 + static_cast<int>(threadIdx.x) % 32; j < n; j += 32) {
    const float x = packed[triangle(j) + k];
    square += x * x;
  }
  square = sum_over_warp(square);
  const float x = packed[triangle(k + 1) + k];
  if (square < kNegligibleSquare) return {0, 0, x};
  const float subdiagonal = -copysignf(sqrtf(square + x * x), x);
  const float head = x - subdiagonal;  // of equal signs: no cancellation
  return {head, 2 / (square + head * head), subdiagonal};
}

/// Reduces the packed triangle to tridiagonal form: pairs[i] = (diagonal i, squared off-diagonal
/// between i - 1 and i). `product` is scratch of n floats.
template <int kCapacity>
__device__ void tridiagonalise(float* packed, int n, float2* pairs, float* product) {
  constexpr int kLanes = EigenvalueShape<kCapacity>::kLanes;
  const int row = static_cast<int>(threadIdx.x) / kLanes,
            part = static_cast<int>(threadIdx.x) % kLanes,
            lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) pairs[0] = make_float2(packed[0], 0);
  for (int k = 0; k + 2 < n; ++k) {
    const Reflector reflector = reflector_of_column(packed, n, k);
    const auto v = [&](int j) { return j == k + 1 ? reflector.head : packed[triangle(j) + k]; };
    if (threadIdx.x == 0) pairs[k + 1].y = reflector.subdiagonal * reflector.subdiagonal;
    // product = beta A v over the trailing block
    const bool active = row > k && row < n;
    float sum = 0;
    if (active) {
      int j = k + 1 + part;
      for (; j <= row; j += kLanes) sum += packed[triangle(row) + j] * v(j);
      for (; j < n; j += kLanes) sum += packed[triangle(j) + row] * v(j);
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (active && part == 0) product[row] = reflector.beta * sum;
    __syncthreads();
    // A -= v u^T + u v^T with u = product - (beta / 2)(product . v) v, again known to every warp
    float along = 0;
    for (int j = k + 1 + lane; j < n; j += 32) along += product[j] * v(j);
    const float half = 0.5f * reflector.beta * sum_over_warp(along);
    if (active) {
      const float own_v = v(row), own_u = product[row] - half * own_v;
      for (int j = k + 1 + part; j <= row; j += kLanes) {
        const float vj = v(j);
        packed[triangle(row) + j] -= own_v * (product[j] - half * vj) + own_u * vj;
      }
    }
    __syncthreads();
    if (threadIdx.x == 0) pairs[k + 1].x = packed[triangle(k + 1) + k + 1];
  }
  if (threadIdx.x == 0 && n > 1) {
    const float last = packed[triangle(n - 1) + n - 2];
    pairs[n - 1] = make_float2(packed[triangle(n - 1) + n - 1], last * last);
  }
  __syncthreads();
}

/// Number of eigenvalues below `point`: signs of the pivots of T - point.
__device__ inline int count_below(const float2* pairs, int n, float point) {
  int count = 0;
  float pivot = 1;
  for (int i = 0; i < n; ++i) {
    pivot = pairs[i].x - point - __fdividef(pairs[i].y, pivot);
    if (fabsf(pivot) < kSmallestPivot) pivot = -kSmallestPivot;
    count += pivot < 0;
  }
  return count;
}

/// Eigenvalue `index` (ascending) of the tridiagonal matrix. kLanes neighbouring threads call
/// together with one index; each tries one point of the interval a round. Equal intervals give
/// equal counts, so the results ascend whatever the rounding.
template <int kCapacity>
__device__ float multisect(const float2* pairs, int n, int index) {
  using Shape = EigenvalueShape<kCapacity>;
  const int lane = static_cast<int>(threadIdx.x) % 32, part = lane % Shape::kLanes;
  // Gershgorin's interval, known to every warp
  float low = 3e38f, high = -3e38f;
  for (int i = lane; i < n; i += 32) {
    const float radius = sqrtf(pairs[i].y) + (i + 1 < n ? sqrtf(pairs[i + 1].y) : 0.0f);
    low = fminf(low, pairs[i].x - radius);
    high = fmaxf(high, pairs[i].x + radius);
  }
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) {
    low = fminf(low, __shfl_xor_sync(0xffffffffu, low, distance));
    high = fmaxf(high, __shfl_xor_sync(0xffffffffu, high, distance));
  }
  for (int round = 0; round < Shape::kRounds; ++round) {
    const float step = (high - low) / (Shape::kLanes + 1);
    const bool above = count_below(pairs, n, low + step * static_cast<float>(part + 1)) > index;
    const unsigned votes =
        (__ballot_sync(0xffffffffu, above) >> (lane - part)) & ((1u << Shape::kLanes) - 1);
    const int first = votes == 0 ? Shape::kLanes : __ffs(static_cast<int>(votes)) - 1;
    const float base = low;
    if (first > 0) low = base + step * static_cast<float>(first);
    if (first < Shape::kLanes) high = base + step * static_cast<float>(first + 1);
  }
  return 0.5f * (low + high);
}

template <int kCapacity>
__global__ void __launch_bounds__(EigenvalueShape<kCapacity>::kThreads)
    symmetric_eigenvalues_kernel(EigenvalueGroups groups, int n, EigenvalueOutputs out) {
  using Shape = EigenvalueShape<kCapacity>;
  HEADSCOPE_DYNAMIC_SHARED(shared);
  float* packed = reinterpret_cast<float*>(shared);
  float2* pairs = reinterpret_cast<float2*>(packed + (triangle(n) + 3) / 4 * 4);
  float* product = reinterpret_cast<float*>(pairs + n);
  const int index = static_cast<int>(blockIdx.x),
            row = static_cast<int>(threadIdx.x) / Shape::kLanes;
  const bool writes = threadIdx.x % Shape::kLanes == 0 && row < n;
  double* values = out.eigenvalues + static_cast<int64_t>(index) * n;

  double trace = NAN, square = NAN;
  const LoadedMatrix loaded =
      load_triangle<Shape::kThreads>(matrix_of_block(groups, index), n, packed, &trace, &square);
  if (threadIdx.x == 0) {
    if (out.is_finite != nullptr) out.is_finite[index] = loaded.is_finite ? 1 : 0;
    if (out.trace != nullptr) out.trace[index] = ldexp(trace, loaded.exponent);
    if (out.squared_norm != nullptr) out.squared_norm[index] = ldexp(square, 2 * loaded.exponent);
  }
  if (!loaded.is_finite) {
    if (writes) values[row] = NAN;
    return;
  }
  tridiagonalise<kCapacity>(packed, n, pairs, product);
  const float value = multisect<kCapacity>(pairs, n, min(row, n - 1));
  if (writes) values[row] = ldexp(static_cast<double>(value), loaded.exponent);
}

}  // namespace headscope::kernels
