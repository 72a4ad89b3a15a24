#pragma once

#include <hwy/base.h>

#include <cstdint>

// Activations as the kernels see them: raw memory, an element type and strides. No torch here.
namespace headscope::simd {

enum class Element : uint8_t { kF64, kF32, kBF16, kF16 };

template <typename Sum>
Sum to_sum(double value) {
  return static_cast<Sum>(value);
}
template <typename Sum>
Sum to_sum(float value) {
  return static_cast<Sum>(value);
}
template <typename Sum>
Sum to_sum(hwy::bfloat16_t value) {
  return static_cast<Sum>(hwy::F32FromBF16(value));
}

/// Calls visit with a typed pointer to element `offset` of data.
template <typename Visit>
void visit_elements(const void* data, Element element, int64_t offset, Visit&& visit) {
  switch (element) {
    case Element::kF64:
      return visit(static_cast<const double*>(data) + offset);
    case Element::kF32:
      return visit(static_cast<const float*>(data) + offset);
    case Element::kBF16:
      return visit(static_cast<const hwy::bfloat16_t*>(data) + offset);
    case Element::kF16:
      return visit(static_cast<const hwy::float16_t*>(data) + offset);
  }
}

}  // namespace headscope::simd
