#pragma once

#include <cstdint>

// The tile registers of Intel AMX, as a policy: kernels are templates over it, so that the tests
// can run them on an emulation (tests/support/numeric/emulated_tiles.h) where no such CPU is.
namespace headscope::simd {

inline constexpr int kTiles = 8;
/// Of a full tile: 16 rows of 64 bytes.
inline constexpr int64_t kTileRows = 16, kTileRowBytes = 64;

/// What LDTILECFG reads.
struct TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// Every tile as large as it can be.
inline TileConfig full_tiles() {
  TileConfig config;
  for (int tile = 0; tile < kTiles; ++tile) {
    config.row_bytes[tile] = kTileRowBytes;
    config.rows[tile] = kTileRows;
  }
  return config;
}

#ifdef HEADSCOPE_AMX
/// The registers themselves. Not by intrinsics: GCC's want the number of a tile as a literal, which
/// a template does not have, and do not tell the compiler that they read memory.
struct HardwareTiles {
  /// Clears all tiles.
  static void configure(const TileConfig& config) {
    __asm__ volatile("ldtilecfg %0" : : "m"(config));
  }

  /// Tells the system that the tiles hold nothing that a context switch has to save.
  static void release() { __asm__ volatile("tilerelease"); }

  template <int kTile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }

  /// stride: in bytes.
  template <int kTile>
  static void load(const void* rows, int64_t stride) {
    __asm__ volatile("tileloadd (%1,%2,1), %%tmm%c0"
                     :
                     : "i"(kTile), "r"(rows), "r"(stride)
                     : "memory");
  }

  template <int kTile>
  static void store(void* rows, int64_t stride) {
    __asm__ volatile("tilestored %%tmm%c0, (%1,%2,1)"
                     :
                     : "i"(kTile), "r"(rows), "r"(stride)
                     : "memory");
  }

  /// sum[m][n] += left[m][2k] right[k][2n] + left[m][2k + 1] right[k][2n + 1], summed over k: bf16
  /// factors, f32 sums.
  template <int kSum, int kLeft, int kRight>
  static void multiply_add() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0"
                     :
                     : "i"(kSum), "i"(kLeft), "i"(kRight));
  }
};
#endif

}  // namespace headscope::simd
