#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.cuh"
#include "kernels/launch.h"
#include "tests/emulation/emulated.h"
#include "tests/emulation/gram_layer.h"

// launch_gram against plain loops in double, on the emulated device.
namespace headscope::emulation {
namespace {

using kernels::ElementType;

class GramParity : public ::testing::TestWithParam<GramCase> {};

TEST_P(GramParity, MatchesDoubleReferenceInEveryThreadOrder) {
  GramLayer layer(GetParam(), /*seed=*/7);
  std::vector<float> first;
  for (const ThreadOrder& order : thread_orders()) {
    const OrderScope scope(order);
    layer.reset();
    ASSERT_EQ(run_gram({&layer}), 0);
    layer.expect_matches_reference(order.name);
    if (first.empty()) first = layer.results();
    EXPECT_EQ(first, layer.results()) << "the bits depend on the order " << order.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Hostile, GramParity, ::testing::ValuesIn(hostile_grams()),
                         [](const auto& info) { return name_of(info.param); });

TEST(Gram, IsExactOnSmallIntegers) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  for (const ElementType type :
       {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    for (const bool is_shifted : {false, true}) {
      GramCase c{.batch = 2, .heads = 2, .tokens = 37, .width = 24, .type = type};
      c.has_shift = is_shifted;
      c.values = GramValues::kIntegers;
      GramLayer layer(c, /*seed=*/3);
      ASSERT_EQ(run_gram({&layer}), 0);
      layer.expect_equals_reference();
    }
  }
}

TEST(Gram, AddsToWhatIsThere) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  GramCase c{.batch = 1, .heads = 2, .tokens = 40, .width = 16};
  c.values = GramValues::kIntegers;
  GramLayer layer(c, /*seed=*/3);
  ASSERT_EQ(run_gram({&layer}), 0);
  ASSERT_EQ(run_gram({&layer}), 0);
  layer.expect_equals_reference(/*calls=*/2);
}

TEST(Gram, WritesBothTrianglesAlike) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  GramCase c{.batch = 1, .heads = 1, .tokens = 100, .width = 45, .has_shift = true};
  GramLayer layer(c, /*seed=*/5);
  ASSERT_EQ(run_gram({&layer}), 0);
  for (int i = 0; i < c.width; ++i) {
    for (int j = 0; j < i; ++j) {
      EXPECT_EQ(std::bit_cast<unsigned>(layer.gram(0, i, j)),
                std::bit_cast<unsigned>(layer.gram(0, j, i)));
    }
  }
}

// A mean of 100 standard deviations: sum z z^T is 10^4 times what is left when the shift is taken
// off it afterwards, and seven digits would leave three. 16-bit z takes few values here, so that
// the rest of a split of z - c does not average out: 2^-17 of each factor unless the shift is
// rounded.
TEST(Gram, AShiftNearALargeMeanKeepsTheSpectrum) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  for (const ElementType type :
       {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    for (const bool rounds_shift : {false, true}) {
      GramCase c{.batch = 1, .heads = 1, .tokens = 300, .width = 20, .type = type};
      c.has_shift = true;
      c.values = GramValues::kLargeMean;
      c.rounds_shift = rounds_shift;
      GramLayer layer(c, /*seed=*/11);
      ASSERT_EQ(run_gram({&layer}), 0);
      layer.expect_matches_reference("large mean");
      const bool is_split_exactly = rounds_shift || type == ElementType::kFloat32;
      EXPECT_LT(layer.worst_relative_error_of_diagonal(), is_split_exactly ? 5e-7 : 8e-6)
          << name_of(c) << rounds_shift;
    }
  }
}

TEST(Gram, GroupsLayersOfDifferentExtents) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  std::vector<std::unique_ptr<GramLayer>> layers;
  std::vector<GramLayer*> pointers;
  for (int i = 0; i < 35; ++i) {  // more than one launch takes
    GramCase c{.batch = 1 + i % 2, .heads = 1 + i % 3, .tokens = 1 + 3 * i, .width = 24};
    c.layout = static_cast<GramLayoutOfZ>(i % 4);
    c.has_keep = i % 2 == 0;
    if (i == 5) c.tokens = 0;
    if (i == 9) c.heads = 0;
    layers.push_back(std::make_unique<GramLayer>(c, /*seed=*/i));
    pointers.push_back(layers.back().get());
  }
  ASSERT_EQ(run_gram(pointers), 0);
  for (const auto& layer : layers) layer->expect_matches_reference("grouped");
}

TEST(Gram, SplitsALongBatchOverBlocks) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  GramCase c{.batch = 3, .heads = 1, .tokens = 517, .width = 16};
  c.has_keep = true;
  GramLayer layer(c, /*seed=*/2);
  const auto blocks = statistics().blocks;
  ASSERT_EQ(run_gram({&layer}), 0);
  EXPECT_GT(statistics().blocks - blocks, 2u + 1);  // splits and the second pass
  layer.expect_matches_reference("split");
}

TEST(Gram, EmptiesItsRegistersInLongBlocks) {
  GramCase c{.batch = 1, .heads = 1, .tokens = 2100, .width = 8};
  GramLayer layer(c, /*seed=*/2);
  ASSERT_EQ(run_gram({&layer}, /*least_tokens_per_block=*/4096), 0);
  layer.expect_matches_reference("long block");
}

TEST(Gram, PaddingIsNotRead) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  GramCase c{.batch = 2, .heads = 2, .tokens = 70, .width = 32};
  c.has_keep = true;
  for (const bool is_shifted : {false, true}) {
    c.has_shift = is_shifted;
    GramLayer layer(c, /*seed=*/4);
    layer.poison_dropped_tokens();
    ASSERT_EQ(run_gram({&layer}), 0);
    layer.expect_matches_reference("poisoned padding");
  }
}

TEST(Gram, NanStaysInItsHead) {
  if (kIsRaceChecked) GTEST_SKIP() << kTooManyFibers;
  GramCase c{.batch = 1, .heads = 2, .tokens = 20, .width = 16};
  GramLayer layer(c, /*seed=*/4);
  layer.poison(/*b=*/0, /*h=*/1, /*t=*/3, /*i=*/2);
  ASSERT_EQ(run_gram({&layer}), 0);
  EXPECT_TRUE(std::isnan(layer.gram(1, 2, 2)));
  for (int i = 0; i < c.width; ++i) EXPECT_TRUE(std::isfinite(layer.gram(0, i, i)));
}

TEST(Gram, RefusesWhatItCannotDo) {
  GramLayer layer({.batch = 1, .heads = 1, .tokens = 8, .width = 16}, /*seed=*/1);
  const kernels::GramProblem problem = layer.problem();
  Buffer<float> workspace(100000);
  const auto launch = [&](int width, std::size_t bytes) {
    return kernels::launch_gram(&problem, 1, width, ElementType::kBFloat16, workspace.data(), bytes,
                                nullptr);
  };
  EXPECT_EQ(kernels::gram_workspace_bytes(&problem, 1, 257), 0u);
  EXPECT_EQ(launch(0, 400000), kernels::kInvalidValue);
  EXPECT_EQ(launch(257, 400000), kernels::kInvalidValue);
  EXPECT_EQ(launch(16, kernels::gram_workspace_bytes(&problem, 1, 16) - 1), kernels::kInvalidValue);
  EXPECT_EQ(launch(16, kernels::gram_workspace_bytes(&problem, 1, 16)), 0);
}

TEST(Gram, WorkspaceIsBounded) {
  // GPT-2 and a 7B model, one step of 16 x 1024 and 8 x 4096 tokens.
  const std::vector<kernels::GramProblem> small(12, {.batch = 16, .heads = 12, .tokens = 1024}),
      large(32, {.batch = 8, .heads = 32, .tokens = 4096});
  EXPECT_LE(kernels::gram_workspace_bytes(small.data(), 12, 64), 15u << 20);
  EXPECT_LE(kernels::gram_workspace_bytes(large.data(), 32, 128), 1024u * 128 * 128 * 4);
}

}  // namespace
}  // namespace headscope::emulation
