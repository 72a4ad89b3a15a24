#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.cuh"
#include "kernels/launch.h"
#include "tests/emulation/device/runtime.h"
#include "tests/emulation/plain_reference.h"

// One attention call on the emulated device: inputs in hostile layouts, the same numbers in double
// for the reference, outputs with guards behind them.
namespace headscope::emulation {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

using kernels::ElementType;

/// How q and k lie in memory; what lies between their elements is NaN.
enum class Layout {
  kContiguous,
  kTokensFirst,  // the [B, T, H, D] view of a fused projection, heads padded to 16 bytes
  kMisaligned,   // contiguous, one element off a 16-byte boundary
  kSteppedWidth  // every third element
};

enum class BiasKind { kNone, kMask, kFloat32, kBFloat16, kFloat16 };

struct AttentionCase {
  ElementType type = ElementType::kBFloat16;
  int batch = 1, query_heads = 1, key_heads = 1, queries = 37, keys = 37, width = 64;
  int sampled = 3;
  bool is_causal = true;
  double scale = 0;  // 0: 1 / sqrt(width)
  double softcap = 0;
  int64_t window = 0;
  bool has_documents = false, has_sinks = false;
  BiasKind bias = BiasKind::kNone;
  bool bias_is_broadcast = false;  // [1, 1, Tq, Tk]
  Layout layout = Layout::kContiguous;
  bool batch_is_broadcast = false;  // k the same for every sequence, stride 0
  int keys_per_split = 0;
  bool has_saved_sums = false;
  bool has_integers = false;  // q and k small integers
};

inline int bytes_of(ElementType type) { return type == ElementType::kFloat32 ? 4 : 2; }

/// A number as the type keeps it.
inline double rounded(double value, ElementType type) {
  const float f = static_cast<float>(value);
  if (type == ElementType::kBFloat16)
    return static_cast<double>(__bfloat162float(__float2bfloat16(f)));
  if (type == ElementType::kFloat16) return static_cast<double>(__half2float(__float2half(f)));
  return static_cast<double>(f);
}

/// Writes a number of the type at element `index`.
inline void store(unsigned char* data, int64_t index, double value, ElementType type) {
  const float f = static_cast<float>(value);
  const __nv_bfloat16 b = __float2bfloat16(f);
  const __half h = __float2half(f);
  const void* source = type == ElementType::kFloat32    ? static_cast<const void*>(&f)
                       : type == ElementType::kBFloat16 ? static_cast<const void*>(&b)
                                                        : static_cast<const void*>(&h);
  const auto bytes = static_cast<std::size_t>(bytes_of(type));
  std::memcpy(data + static_cast<std::size_t>(index) * bytes, source, bytes);
}

/// [B, H, T, D] numbers in a layout.
class DeviceTensor {
 public:
  DeviceTensor(const std::vector<double>& values, int batch, int heads, int tokens, int width,
               ElementType type, Layout layout, bool batch_is_broadcast) {
    const int64_t step = layout == Layout::kSteppedWidth ? 3 : 1;
    const int64_t chunk = 16 / bytes_of(type);
    int64_t row = width * step;
    if (layout == Layout::kTokensFirst) {
      row = (row + chunk - 1) / chunk * chunk + chunk;
      set_strides(tokens * heads * row, row, heads * row, step);
    } else {
      set_strides(heads * tokens * row, tokens * row, row, step);
    }
    const int stored_batch = batch_is_broadcast ? 1 : batch;
    const int64_t last = (stored_batch - 1) * strides[0] + (heads - 1) * strides[1] +
                         (tokens - 1) * strides[2] + (width - 1) * step;
    const auto bytes = static_cast<std::size_t>(bytes_of(type));
    buffer_ = std::make_unique<Buffer<unsigned char>>(
        tokens == 0 ? 0 : static_cast<std::size_t>(last + 1) * bytes,
        layout == Layout::kMisaligned ? bytes : 0);
    std::size_t i = 0;
    for (int b = 0; b < stored_batch; ++b) {
      for (int h = 0; h < heads; ++h) {
        for (int t = 0; t < tokens; ++t) {
          for (int d = 0; d < width; ++d) {
            store(buffer_->data(), b * strides[0] + h * strides[1] + t * strides[2] + d * step,
                  values[i++], type);
          }
        }
      }
    }
    if (batch_is_broadcast) strides[0] = 0;
  }

  const void* data() const { return buffer_->data(); }
  int64_t strides[4] = {};

 private:
  void set_strides(int64_t b, int64_t h, int64_t t, int64_t d) {
    strides[0] = b;
    strides[1] = h;
    strides[2] = t;
    strides[3] = d;
  }
  std::unique_ptr<Buffer<unsigned char>> buffer_;
};

/// Results followed by a guard; all bytes 0xFE before a run, which is no NaN.
class GuardedFloats {
 public:
  explicit GuardedFloats(std::size_t size) : size_(size), buffer_(size + kGuard) {
    buffer_.fill_bytes(0xFE);
  }
  float* data() { return buffer_.data(); }
  double operator[](std::size_t i) const { return static_cast<double>(buffer_[i]); }
  bool guard_is_intact() const {
    const std::vector<unsigned char> untouched(kGuard * sizeof(float), 0xFE);
    return std::memcmp(buffer_.data() + size_, untouched.data(), untouched.size()) == 0;
  }
  void append_bits(std::vector<uint32_t>& all) const {
    for (std::size_t i = 0; i < size_; ++i) all.push_back(__float_as_uint(buffer_[i]));
  }

 private:
  static constexpr std::size_t kGuard = 16;
  std::size_t size_;
  Buffer<float> buffer_;
};

struct AttentionResults {
  AttentionResults(std::size_t rows, std::size_t groups)
      : mass(rows * groups),
        score(rows * groups),
        entropy(rows),
        max_logit(rows),
        log_sum_exp(rows),
        first_mass(rows) {}
  GuardedFloats mass, score, entropy, max_logit, log_sum_exp, first_mass;
};

/// The call, its groups ({own position}, {0}, all even keys, none, {last key}) and its results.
class AttentionProblem {
 public:
  static constexpr int kGroups = 5;

  AttentionProblem(const AttentionCase& c, unsigned seed);

  /// Numbers to spoil before run(), dense and in double: q and k hold values of the type.
  reference::PlainAttention plain;
  std::vector<int64_t> rows, targets, offsets;

  /// Uploads everything, runs, checks the guards.
  void run();

  /// Every result against the double reference.
  void expect_matches_reference() const;

  const AttentionResults& results() const { return *results_; }
  std::vector<uint32_t> result_bits() const;

 private:
  void make_bias(std::mt19937& random);
  void make_groups();
  void expect_row(int b, int h, int r) const;

  AttentionCase case_;
  std::unique_ptr<AttentionResults> results_;
};

}  // namespace headscope::emulation
