#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

// CUDA's 16-bit floating-point types, with the conversions that kernels use.

inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
inline int __float_as_int(float value) { return static_cast<int>(__float_as_uint(value)); }
inline float __int_as_float(int bits) { return __uint_as_float(static_cast<unsigned>(bits)); }

struct __nv_bfloat16 {
  std::uint16_t x;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
struct __half {
  std::uint16_t x;
};
struct alignas(4) __half2 {
  __half x, y;
};

inline float __bfloat162float(__nv_bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.x) << 16);
}
inline __nv_bfloat16 __float2bfloat16(float value) {
  const unsigned bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {0x7fff};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16)};
}
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value) { return value.x; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) { return {bits}; }

inline float __half2float(__half value) {
  const unsigned exponent = (value.x >> 10) & 31u, fraction = value.x & 1023u;
  const float sign = (value.x & 0x8000u) != 0 ? -1.f : 1.f;
  if (exponent == 31) return fraction != 0 ? std::nanf("") : sign * INFINITY;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction | 1024u), static_cast<int>(exponent) - 25);
}
/// Round to nearest, ties to even, as the hardware does.
inline __half __float2half(float value) {
  const auto sign = static_cast<std::uint16_t>((__float_as_uint(value) >> 16) & 0x8000u);
  const float size = std::fabs(value);
  if (std::isnan(value)) return {0x7fff};
  if (size == 0.f) return {sign};
  if (size >= 65520.f) return {static_cast<std::uint16_t>(sign | 0x7c00u)};
  // The spacing of halves around `size` is 2^(e - 11) for size in [2^(e-1), 2^e), at least 2^-24.
  int exponent = 0;
  std::frexp(size, &exponent);
  const int spacing = exponent - 11 < -24 ? -24 : exponent - 11;
  // Below 2048 units of a spacing: the implicit bit and carries fall into place by addition.
  const auto units = static_cast<unsigned>(std::nearbyint(std::ldexp(size, -spacing)));
  return {static_cast<std::uint16_t>(sign | (static_cast<unsigned>(spacing + 24) * 1024u + units))};
}
inline unsigned short __half_as_ushort(__half value) { return value.x; }
inline __half __ushort_as_half(unsigned short bits) { return {bits}; }
