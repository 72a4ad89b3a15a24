#include <gtest/gtest.h>

#include <array>

#include "headscope/null_calibration.h"
#include "headscope/probe_batch.h"

namespace headscope {
namespace {

/// Made-up attention of three heads: whole numbers, so that another program computes the same.
float made_up_attention(size_t head, size_t row, size_t t) {
  if (head == 0) return static_cast<float>(t);
  if (head == 1) return static_cast<float>(row * t);
  return static_cast<float>((7 * row + 13 * t) % 101);
}

// The figures are numpy's, with the loops of the reference's null_selectivity_calibration over its
// own batch of 2000 rows, 20 draws with RandomState(2026).
TEST(ReferenceNull, DrawsAndFiguresEqualNumpys) {
  const InductionBatch batch = induction_batch({});
  const auto rows = planted_screen_rows(batch.pair_position, 256, ScreenControls::kReference50);
  std::vector<float> weights;
  const auto null =
      calibrate_selectivity_null(rows, 0, 3,
                                 [&](size_t head) {
                                   weights.clear();
                                   for (size_t r = 0; r < 2000; ++r)
                                     for (size_t t = 0; t < 256; ++t)
                                       weights.push_back(made_up_attention(head, r, t));
                                   return std::span<const float>(weights);
                                 },
                                 {.targets = NullTargets::kUniform, .draws = 20, .seed = 2026});
  const auto expect_figures = [](const NullDistribution& got, std::array<double, 4> want) {
    EXPECT_NEAR(got.max, want[0], 1e-12);
    EXPECT_NEAR(got.p99, want[1], 1e-12);
    EXPECT_NEAR(got.p95, want[2], 1e-12);
    EXPECT_NEAR(got.median, want[3], 1e-12);
  };
  EXPECT_NEAR(null.heads[0].selectivity, 0.5697761766058561, 1e-12);
  EXPECT_NEAR(null.heads[1].selectivity, 0.5706174603475277, 1e-12);
  EXPECT_NEAR(null.heads[2].selectivity, 0.9965112856290406, 1e-12);
  expect_figures(null.heads[0].null,
                 {0.9891614287904338, 0.9870030660738923, 0.9783696152077265, 0.9628046910930552});
  expect_figures(null.heads[1].null,
                 {0.9840620639922905, 0.9839336951934499, 0.9834202199980873, 0.9642123913405423});
  expect_figures(null.heads[2].null,
                 {1.0258671992858595, 1.0250978063853513, 1.0220202347833183, 1.0051050893715594});
  expect_figures(null.pooled,
                 {1.0258671992858595, 1.0234780318579655, 1.0144022952005083, 0.9666206857836399});
  EXPECT_NEAR(null.heads[0].ratio, 0.5697761766058561 / 0.9891614287904338, 1e-12);
}

}  // namespace
}  // namespace headscope
