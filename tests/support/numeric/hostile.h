#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace headscope::testing {

enum class Layout {
  kContiguous,
  kTransposedView,
  kPaddedSlice,
  kExpandedBatch,
  kWidthMajor,
  kMisaligned
};

struct HostileCase {
  int64_t batch, heads, tokens, width;
  at::ScalarType type;
  Layout layout;
};

/// Values of a standard normal in a layout that a kernel may not like: the [B, T, H, D] view, a
/// slice of a buffer whose rest is NaN, one batch entry expanded with stride 0, tokens side by side
/// in memory, or a start that is aligned to one element only, amid NaN.
inline at::Tensor make_hostile(const HostileCase& c, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto normal = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::kDouble).to(c.type);
  };
  switch (c.layout) {
    case Layout::kContiguous:
      return normal({c.batch, c.heads, c.tokens, c.width});
    case Layout::kTransposedView:
      return normal({c.batch, c.tokens, c.heads, c.width}).transpose(1, 2);
    case Layout::kPaddedSlice: {
      at::Tensor buffer =
          at::full({c.batch + 1, c.heads + 1, c.tokens + 2, 2 * c.width + 1},
                   std::numeric_limits<double>::quiet_NaN(), at::TensorOptions().dtype(c.type));
      at::Tensor view = buffer.slice(0, 1)
                            .slice(1, 0, c.heads)
                            .slice(2, 1, c.tokens + 1)
                            .slice(3, 1, 2 * c.width + 1, 2);
      view.copy_(normal({c.batch, c.heads, c.tokens, c.width}));
      return view;
    }
    case Layout::kExpandedBatch:
      return normal({1, c.heads, c.tokens, c.width}).expand({c.batch, c.heads, c.tokens, c.width});
    case Layout::kWidthMajor:
      return normal({c.batch, c.heads, c.width, c.tokens}).transpose(2, 3);
    case Layout::kMisaligned: {
      const int64_t size = c.batch * c.heads * c.tokens * c.width;
      const at::Tensor buffer = at::full({size + 2}, std::numeric_limits<double>::quiet_NaN(),
                                         at::TensorOptions().dtype(c.type));
      const at::Tensor view = buffer.narrow(0, 1, size).view({c.batch, c.heads, c.tokens, c.width});
      view.copy_(normal({c.batch, c.heads, c.tokens, c.width}));
      return view;
    }
  }
  return {};
}

inline std::string describe(const HostileCase& c) {
  static const char* kLayouts[] = {"contiguous", "transposed",  "padded",
                                   "expanded",   "width_major", "misaligned"};
  return std::string(c10::toString(c.type)) + "_b" + std::to_string(c.batch) + "_h" +
         std::to_string(c.heads) + "_t" + std::to_string(c.tokens) + "_d" +
         std::to_string(c.width) + "_" + kLayouts[static_cast<int>(c.layout)];
}

/// Blocks of the kernels are 64 tokens, tiles of keys 12 or 24 and vectors 1 to 16 sums: one below,
/// at and above, primes, and single everything.
inline std::vector<HostileCase> hostile_cases() {
  std::vector<HostileCase> cases;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    cases.push_back({1, 1, 1, 1, type, Layout::kContiguous});
    cases.push_back({2, 3, 63, 7, type, Layout::kTransposedView});
    cases.push_back({1, 2, 64, 16, type, Layout::kPaddedSlice});
    cases.push_back({2, 4, 65, 13, type, Layout::kPaddedSlice});
    cases.push_back({3, 2, 31, 8, type, Layout::kExpandedBatch});
    cases.push_back({2, 1, 12, 15, type, Layout::kMisaligned});
    cases.push_back({1, 3, 25, 33, type, Layout::kWidthMajor});
  }
  return cases;
}

/// The head dimensions of real models and their neighbours, too large for every test.
inline std::vector<HostileCase> wide_cases() {
  std::vector<HostileCase> cases;
  for (const at::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf}) {
    cases.push_back({1, 2, 65, 64, type, Layout::kTransposedView});
    cases.push_back({2, 1, 63, 65, type, Layout::kMisaligned});
    cases.push_back({1, 1, 129, 127, type, Layout::kPaddedSlice});
    cases.push_back({1, 2, 24, 128, type, Layout::kContiguous});
    cases.push_back({1, 1, 67, 256, type, Layout::kWidthMajor});
  }
  return cases;
}

/// Every element within its own bound; NaN and unequal infinities fail. Reports the first bad
/// coordinate and the worst error.
inline void expect_within(const at::Tensor& got_any, const at::Tensor& want_any,
                          const at::Tensor& bound_any) {
  ASSERT_EQ(got_any.sizes(), want_any.sizes());
  const at::Tensor got = got_any.to(at::kDouble).flatten().contiguous(),
                   want = want_any.to(at::kDouble).flatten().contiguous();
  const at::Tensor bound = bound_any.to(at::kDouble).expand_as(want_any).flatten().contiguous();
  double worst = 0;
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < got.numel(); ++i) {
    const double g = got.const_data_ptr<double>()[i], w = want.const_data_ptr<double>()[i];
    const double error = g == w ? 0.0 : std::abs(g - w);
    if (!(error <= bound.const_data_ptr<double>()[i])) {
      ++bad;
      if (first < 0) first = i;
    }
    worst = std::max(worst, error);
  }
  if (bad > 0) {
    ADD_FAILURE() << bad << " of " << got.numel() << " out of bounds, first at " << first
                  << ": got " << got.const_data_ptr<double>()[first] << ", want "
                  << want.const_data_ptr<double>()[first] << ", bound "
                  << bound.const_data_ptr<double>()[first] << "; worst error " << worst;
  }
}

inline at::Tensor scalar(double value) { return at::full({}, value, at::kDouble); }

}  // namespace headscope::testing
