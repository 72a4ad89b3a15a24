#pragma once

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "csrc/measure/simd/amx_tiles.h"

namespace headscope::testing {

struct TileState {
  using Tile = std::array<std::array<uint32_t, simd::kTileRowBytes / 4>, simd::kTileRows>;
  simd::TileConfig config;
  bool is_configured = false;
  std::array<Tile, simd::kTiles> tiles = {};
};

/// The tile registers in plain C++, as Intel's manual (SDM volume 2) has the instructions: palette
/// 1, and what raises #UD or #GP on a CPU fails the test. One thread at a time.
struct EmulatedTiles {
  static void configure(const simd::TileConfig& config) {
    state = {};
    if (const char* fault = fault_of(config)) {
      ADD_FAILURE() << "LDTILECFG: " << fault;
      return;
    }
    state.config = config;
    state.is_configured = config.palette == 1;
  }

  static void release() { state = {}; }
  static bool is_configured() { return state.is_configured; }

  template <int kTile>
  static void zero() {
    if (is_usable<kTile>("TILEZERO")) state.tiles[kTile] = {};
  }

  template <int kTile>
  static void load(const void* rows, int64_t stride) {
    if (!is_usable<kTile>("TILELOADD")) return;
    state.tiles[kTile] = {};
    for (int64_t row = 0; row < state.config.rows[kTile]; ++row) {
      std::memcpy(&state.tiles[kTile][row], static_cast<const char*>(rows) + row * stride,
                  state.config.row_bytes[kTile]);
    }
  }

  template <int kTile>
  static void store(void* rows, int64_t stride) {
    if (!is_usable<kTile>("TILESTORED")) return;
    for (int64_t row = 0; row < state.config.rows[kTile]; ++row) {
      std::memcpy(static_cast<char*>(rows) + row * stride, &state.tiles[kTile][row],
                  state.config.row_bytes[kTile]);
    }
  }

  template <int kSum, int kLeft, int kRight>
  static void multiply_add() {
    static_assert(kSum != kLeft && kSum != kRight && kLeft != kRight, "TDPBF16PS: #UD");
    if (!is_usable<kSum>("TDPBF16PS") || !is_usable<kLeft>("TDPBF16PS") ||
        !is_usable<kRight>("TDPBF16PS")) {
      return;
    }
    const simd::TileConfig& config = state.config;
    const int pairs = config.row_bytes[kLeft] / 4, columns = config.row_bytes[kSum] / 4;
    if (config.row_bytes[kSum] % 4 != 0 || config.row_bytes[kLeft] % 4 != 0 ||
        config.row_bytes[kRight] % 4 != 0 || config.rows[kSum] != config.rows[kLeft] ||
        config.row_bytes[kSum] != config.row_bytes[kRight] || pairs != config.rows[kRight]) {
      ADD_FAILURE() << "TDPBF16PS: the shapes of the tiles do not fit";
      return;
    }
    const Tile &left = state.tiles[kLeft], &right = state.tiles[kRight];
    for (int m = 0; m < config.rows[kSum]; ++m) {
      for (int n = 0; n < columns; ++n) {
        float even = 0, odd = 0;
        for (int k = 0; k < pairs; ++k) {
          even = fused(bf16(left[m][k]), bf16(right[k][n]), even);
          odd = fused(bf16(left[m][k] >> 16), bf16(right[k][n] >> 16), odd);
        }
        uint32_t& sum = state.tiles[kSum][m][n];
        sum = std::bit_cast<uint32_t>(
            flushed(flushed(std::bit_cast<float>(sum)) + flushed(even + odd)));
      }
    }
  }

 private:
  using Tile = TileState::Tile;
  static inline TileState state;

  static const char* fault_of(const simd::TileConfig& config) {
    if (config.palette > 1) return "the palette is not known";
    for (const uint8_t byte : config.reserved) {
      if (byte != 0) return "a reserved byte is set";
    }
    for (int tile = 0; tile < 16; ++tile) {
      const int64_t rows = config.rows[tile], bytes = config.row_bytes[tile];
      if (tile >= simd::kTiles && (rows != 0 || bytes != 0)) return "there are 8 tiles";
      if (rows > simd::kTileRows || bytes > simd::kTileRowBytes) return "a tile is 16 x 64 bytes";
      if ((rows == 0) != (bytes == 0))
        return "a tile has rows without bytes, or bytes without rows";
    }
    return nullptr;
  }

  template <int kTile>
  static bool is_usable(const char* instruction) {
    static_assert(kTile >= 0 && kTile < simd::kTiles, "there are 8 tiles");
    if (state.is_configured && state.config.rows[kTile] != 0) return true;
    ADD_FAILURE() << instruction << ": tile " << kTile << " is not configured";
    return false;
  }

  /// Denormal numbers are zero, as factors and as sums.
  static float flushed(float value) {
    return std::fpclassify(value) == FP_SUBNORMAL ? std::copysign(0.0f, value) : value;
  }
  static float bf16(uint32_t bits) { return flushed(std::bit_cast<float>(bits << 16)); }
  /// A product of two bf16 fits f32 unless its exponent does not: only then fusing matters.
  static float fused(float a, float b, float sum) {
    const float product = a * b;
    return flushed(std::isnormal(product) || a == 0 || b == 0 ? product + sum
                                                              : std::fma(a, b, sum));
  }
};

}  // namespace headscope::testing
