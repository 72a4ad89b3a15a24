#include <gtest/gtest.h>
#include <hwy/aligned_allocator.h>

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <vector>

#include "csrc/measure/simd/attention_mass.h"
#include "csrc/measure/simd/attention_vectors.h"
#include "csrc/measure/simd/gram.h"
#include "tests/support/numeric/simd_targets.h"

// The kernels on raw memory, where an operator would not show what is asked of them.
namespace headscope::simd {
namespace {

class SimdKernels : public ::testing::TestWithParam<int64_t> {
 protected:
  testing::WithSimdTarget target_{GetParam()};
};

/// exp(x) by the vectors of a softmax whose column has a score of 0 and then one of x.
template <typename Sum>
double exp_in_softmax(double x) {
  const AttentionKernels<Sum>& kernels = attention_kernels<Sum>();
  OnlineSoftmax<Sum> softmax;
  softmax.reset();
  std::vector<Sum> scores(static_cast<size_t>(kernels.lanes), Sum{0});
  kernels.absorb(softmax, scores.data(), 1, false, nullptr);
  softmax.total[0] = 0;  // leaves the maximum, so that exp(x) is not lost beside the 1
  scores.assign(scores.size(), static_cast<Sum>(x));
  kernels.absorb(softmax, scores.data(), 1, false, nullptr);
  return softmax.total[0];
}

TEST_P(SimdKernels, ExponentialsAreWithinTheirStatedError) {
  for (double x = 0; x > -86.5; x -= 0.0137) {
    const double f32 = static_cast<double>(static_cast<float>(x));
    EXPECT_LE(std::abs(exp_in_softmax<float>(x) / std::exp(f32) - 1), 1.5e-7) << x;
    EXPECT_LE(std::abs(exp_in_softmax<double>(x) / std::exp(x) - 1), 4.5e-16) << x;
  }
  EXPECT_EQ(exp_in_softmax<float>(0), 1.0);
  EXPECT_EQ(exp_in_softmax<float>(-200), 0.0);
  EXPECT_EQ(exp_in_softmax<float>(-std::numeric_limits<double>::infinity()), 0.0);
}

TEST_P(SimdKernels, CapsAreTanhAndKeepNan) {
  const AttentionKernels<float>& kernels = attention_kernels<float>();
  for (double x = -400; x <= 400; x += x > -1 && x < 1 ? 0.01 : 0.7) {
    std::vector<float> scores(static_cast<size_t>(kernels.lanes), static_cast<float>(x));
    kernels.cap_scores(scores.data(), kernels.lanes, 30.0f);
    const double want = 30 * std::tanh(static_cast<double>(static_cast<float>(x)) / 30);
    // 4 units of tanh, and one each of the division and the product.
    EXPECT_LE(std::abs(scores[0] - want), 6 * 0x1p-23 * std::abs(want) + 1e-37) << x;
  }
  std::vector<float> scores(static_cast<size_t>(kernels.lanes),
                            std::numeric_limits<float>::quiet_NaN());
  kernels.cap_scores(scores.data(), kernels.lanes, 30.0f);
  EXPECT_TRUE(std::isnan(scores[0]));
}

double value_of_f16(uint16_t bits) {
  const double sign = (bits & 0x8000) != 0 ? -1 : 1, fraction = bits & 0x3FF;
  const int exponent = bits >> 10 & 0x1F;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent < 31) return sign * std::ldexp(1024 + fraction, exponent - 25);
  return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::quiet_NaN();
}

// Whole vectors and their tails, also of what is not finite.
TEST_P(SimdKernels, EveryHalfPrecisionNumberWidensToItself) {
  std::vector<uint16_t> halves(0x10000);
  for (size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<uint16_t>(i);
  constexpr int64_t kWidth = 61;
  for (size_t first = 0; first + kWidth <= halves.size(); first += kWidth) {
    float wide[kWidth], strided[kWidth];
    attention_kernels<float>().widen_rows(halves.data() + first, Element::kF16, 0, 1, 1, 0, kWidth,
                                          kWidth, wide);
    attention_kernels<float>().widen_rows(halves.data() + first, Element::kF16, 1, kWidth, kWidth,
                                          0, 1, 1, strided);
    for (size_t i = 0; i < kWidth; ++i) {
      const double want = value_of_f16(halves[first + i]);
      for (const double got : {double{wide[i]}, double{strided[i]}}) {
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got)) << std::hex << halves[first + i];
        } else {
          EXPECT_EQ(got, want) << std::hex << halves[first + i];
        }
      }
    }
  }
}

// A host may have floating-point exceptions trap: what lies in the workspace must not raise any.
TEST_P(SimdKernels, TheWorkspaceIsNotComputedWithAsItWas) {
  constexpr int64_t kTokens = 70;
  for (const int64_t width : {1, 5, 24, 33}) {
    const std::vector<float> z(static_cast<size_t>(kTokens * width), 1.0f),
        shift(static_cast<size_t>(width), 0.0f);
    std::vector<float> gram(static_cast<size_t>(width * width)), sum(static_cast<size_t>(width));
    const size_t size = static_cast<size_t>(gram_workspace_bytes(width, 4)) / sizeof(float);
    const auto workspace = hwy::AllocateAligned<float>(size);
    std::fill_n(workspace.get(), size, std::numeric_limits<float>::signaling_NaN());
    std::feclearexcept(FE_ALL_EXCEPT);
    add_gram({z.data(), Element::kF32, kTokens, width, width, 1}, shift.data(), {}, workspace.get(),
             gram.data(), sum.data());
    EXPECT_EQ(std::fetestexcept(FE_INVALID), 0) << width;
    EXPECT_EQ(gram[0], kTokens);
  }
}

TEST_P(SimdKernels, ScratchIsSmallAndDoesNotGrowWithTheTokens) {
  for (const int64_t width : {1, 13, 64, 128, 256}) {
    for (const int64_t bytes : {4, 8})
      EXPECT_LE(gram_workspace_bytes(width, bytes), 64 << 10) << width;
    for (const Element element : {Element::kF32, Element::kBF16}) {
      for (const int64_t value_width : {int64_t{0}, width}) {
        RowsCall call;
        call.element = element;
        call.heads = 16;
        call.key_heads = 2;
        call.width = width;
        call.sampled = 16;
        call.keys = 1024;
        const int64_t bytes = rows_scratch_bytes<float>(call, value_width);
        EXPECT_LE(bytes, 64 << 10) << width << ", " << value_width;
        for (const int64_t keys : {4096, 65536}) {
          call.keys = keys;
          EXPECT_EQ(rows_scratch_bytes<float>(call, value_width), bytes);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, SimdKernels, ::testing::ValuesIn(testing::simd_targets()),
                         [](const auto& info) { return testing::target_name(info.param); });

}  // namespace
}  // namespace headscope::simd
