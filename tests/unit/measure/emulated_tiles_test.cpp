#include "tests/support/numeric/emulated_tiles.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

// The emulation against what Intel's manual says of each instruction, and that it notices misuse.
namespace headscope::testing {
namespace {

using Tiles = EmulatedTiles;
constexpr int64_t kStride = simd::kTileRowBytes;

uint32_t pair(float low, float high) {
  return std::bit_cast<uint32_t>(low) >> 16 | (std::bit_cast<uint32_t>(high) & 0xffff0000u);
}

/// A tile whose every word is the same.
std::vector<uint32_t> filled(uint32_t word) { return std::vector<uint32_t>(256, word); }

class EmulatedTilesTest : public ::testing::Test {
 protected:
  void SetUp() override { Tiles::configure(simd::full_tiles()); }
  void TearDown() override { Tiles::release(); }

  /// sum + left right, each tile filled with one word; element (0, 0).
  static float multiplied(float sum, uint32_t left, uint32_t right) {
    std::vector<uint32_t> out = filled(std::bit_cast<uint32_t>(sum));
    Tiles::load<0>(out.data(), kStride);
    Tiles::load<1>(filled(left).data(), kStride);
    Tiles::load<2>(filled(right).data(), kStride);
    Tiles::multiply_add<0, 1, 2>();
    Tiles::store<0>(out.data(), kStride);
    return std::bit_cast<float>(out[0]);
  }
};

TEST_F(EmulatedTilesTest, MultiplyRowsByColumnsOfPairs) {
  std::vector<uint32_t> left(256), right(256), out(256);
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 16; ++k) {
      left[static_cast<size_t>(i * 16 + k)] =
          pair(static_cast<float>(i + k), static_cast<float>(i - k));
      right[static_cast<size_t>(k * 16 + i)] =
          pair(static_cast<float>(2 * k - i), static_cast<float>(k + 3 * i));
    }
  }
  Tiles::zero<3>();
  Tiles::load<4>(left.data(), kStride);
  Tiles::load<5>(right.data(), kStride);
  Tiles::multiply_add<3, 4, 5>();
  Tiles::multiply_add<3, 4, 5>();
  Tiles::store<3>(out.data(), kStride);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 16; ++n) {
      int want = 0;
      for (int k = 0; k < 16; ++k) want += 2 * ((m + k) * (2 * k - n) + (m - k) * (k + 3 * n));
      EXPECT_EQ(std::bit_cast<float>(out[static_cast<size_t>(m * 16 + n)]),
                static_cast<float>(want));
    }
  }
}

TEST_F(EmulatedTilesTest, RoundOnceAProductAndTakeTheTokensOfAPairApart) {
  // In turn they would be 2^24 + 1 + 1 ..., which stays at 2^24; here 16 ones come together first.
  EXPECT_EQ(multiplied(0x1p24f, pair(1, 0), pair(1, 0)), 0x1p24f + 16);
  // Even and odd tokens cancel before the sum so far, which is small beside each, is added.
  EXPECT_EQ(multiplied(3, pair(0x1p100f, 0x1p100f), pair(0x1p20f, -0x1p20f)), 3.0f);
  // Each even product is lost beside the first; the odd ones are not.
  std::vector<uint32_t> left = filled(pair(1, 1)), right = filled(pair(1, 1)), out(256);
  std::fill_n(right.begin(), 16, pair(0x1p24f, 1));
  Tiles::zero<0>();
  Tiles::load<1>(left.data(), kStride);
  Tiles::load<2>(right.data(), kStride);
  Tiles::multiply_add<0, 1, 2>();
  Tiles::store<0>(out.data(), kStride);
  EXPECT_EQ(std::bit_cast<float>(out[0]), 0x1p24f + 16);
}

TEST_F(EmulatedTilesTest, TakeDenormalNumbersAsZero) {
  constexpr float kTiny = 0x1p-127f, kLarge = 0x1p100f;
  EXPECT_EQ(multiplied(0, pair(kTiny, kTiny), pair(kLarge, kLarge)), 0.0f);
  EXPECT_EQ(multiplied(0, pair(0x1p-70f, 0), pair(0x1p-70f, 0)), 0.0f);
  EXPECT_EQ(multiplied(kTiny, pair(0, 0), pair(0, 0)), 0.0f);
  EXPECT_EQ(multiplied(0, pair(0x1p-60f, 0), pair(0x1p-60f, 0)), 0x1p-116f);
}

TEST_F(EmulatedTilesTest, CarryInfinityAndNan) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(multiplied(0, pair(kInf, 0), pair(1, 1)), kInf);
  EXPECT_TRUE(std::isnan(multiplied(0, pair(kInf, 0), pair(0, 0))));
  EXPECT_TRUE(std::isnan(multiplied(0, pair(kInf, kInf), pair(1, -1))));
  EXPECT_EQ(multiplied(0, pair(0x1p100f, 0), pair(0x1p100f, 0)), kInf);
}

TEST_F(EmulatedTilesTest, HoldNothingOnceConfiguredAgain) {
  Tiles::load<6>(filled(7).data(), kStride);
  Tiles::configure(simd::full_tiles());
  std::vector<uint32_t> out = filled(1);
  Tiles::store<6>(out.data(), kStride);
  EXPECT_EQ(out, filled(0));
}

TEST_F(EmulatedTilesTest, KeepToTheRowsAndBytesOfATile) {
  simd::TileConfig config;
  config.palette = 1;
  config.rows[0] = 2;
  config.row_bytes[0] = 8;
  Tiles::configure(config);
  std::vector<uint32_t> out = filled(1);
  Tiles::load<0>(filled(7).data(), kStride);
  Tiles::store<0>(out.data(), kStride);
  for (size_t i = 0; i < out.size(); ++i)
    EXPECT_EQ(out[i], i / 16 < 2 && i % 16 < 2 ? 7u : 1u) << i;
}

TEST_F(EmulatedTilesTest, FailTheTestOnMisuse) {
  const auto configure = [](auto change) {
    simd::TileConfig config = simd::full_tiles();
    change(config);
    Tiles::configure(config);
  };
  using Config = simd::TileConfig;
  EXPECT_NONFATAL_FAILURE(configure([](Config& c) { c.palette = 2; }), "palette");
  EXPECT_NONFATAL_FAILURE(configure([](Config& c) { c.reserved[3] = 1; }), "reserved");
  EXPECT_NONFATAL_FAILURE(configure([](Config& c) { c.rows[1] = 17; }), "16 x 64");
  EXPECT_NONFATAL_FAILURE(configure([](Config& c) { c.row_bytes[1] = 65; }), "16 x 64");
  EXPECT_NONFATAL_FAILURE(configure([](Config& c) { c.rows[1] = 0; }), "without");
  EXPECT_NONFATAL_FAILURE(configure([](Config& c) {
                            c.rows[8] = 16;
                            c.row_bytes[8] = 64;
                          }),
                          "8 tiles");
  EXPECT_NONFATAL_FAILURE(Tiles::zero<0>(), "not configured");  // after a fault nothing is

  configure([](Config& c) { c.rows[7] = 8; });
  EXPECT_NONFATAL_FAILURE((Tiles::multiply_add<0, 1, 7>()), "do not fit");
  EXPECT_NONFATAL_FAILURE((Tiles::multiply_add<7, 1, 2>()), "do not fit");
  configure([](Config& c) { c.row_bytes[7] = 32; });
  EXPECT_NONFATAL_FAILURE((Tiles::multiply_add<0, 7, 2>()), "do not fit");
  EXPECT_NONFATAL_FAILURE((Tiles::multiply_add<7, 1, 2>()), "do not fit");

  Tiles::release();
  std::vector<uint32_t> memory = filled(0);
  EXPECT_NONFATAL_FAILURE(Tiles::zero<0>(), "TILEZERO");
  EXPECT_NONFATAL_FAILURE(Tiles::load<1>(memory.data(), kStride), "TILELOADD");
  EXPECT_NONFATAL_FAILURE(Tiles::store<2>(memory.data(), kStride), "TILESTORED");
  EXPECT_NONFATAL_FAILURE((Tiles::multiply_add<0, 1, 2>()), "TDPBF16PS");
}

}  // namespace
}  // namespace headscope::testing
