#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "headscope/screen.h"
#include "headscope/screen_batches.h"
#include "headscope/screen_rows.h"
#include "tests/support/errors.h"

namespace headscope {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// The reference's sizes: 42 names, 6 places, 6 objects, and its template of 14 tokens.
IndirectObjectOptions reference_sizes() {
  IndirectObjectOptions options;
  options.names.resize(42);
  std::iota(options.names.begin(), options.names.end(), 1000);
  options.places = {2000, 2001, 2002, 2003, 2004, 2005};
  options.objects = {3000, 3001, 3002, 3003, 3004, 3005};
  options.prompt = {1, kFirstName, 2, kSecondName, 3, 4, 5, kPlace, 6, kSubject, 7, 8, kObject, 9};
  return options;
}

std::vector<int64_t> prompt_row(const IndirectObjectBatch& batch, int64_t n) {
  const int64_t* data = batch.tokens.const_data_ptr<int64_t>() + n * batch.tokens.size(1);
  return {data, data + batch.tokens.size(1)};
}

// Choices by numpy's RandomState(42): (25, 13, 0, 1), (30, 0, 3, 3), .. (11, 27, 5, 2).
TEST(IndirectObject, ChoosesAsTheReference) {
  const auto batch = indirect_object_batch(reference_sizes());
  EXPECT_THAT(prompt_row(batch, 0),
              ElementsAre(1, 1025, 2, 1013, 3, 4, 5, 2000, 6, 1013, 7, 8, 3001, 9));
  EXPECT_THAT(prompt_row(batch, 1),
              ElementsAre(1, 1000, 2, 1030, 3, 4, 5, 2003, 6, 1000, 7, 8, 3003, 9));
  int64_t digest = 0;
  for (int64_t n = 0; n < 500; ++n) {
    const auto row = prompt_row(batch, n);
    const auto i = static_cast<size_t>(n);
    digest += (n + 1) * (batch.indirect_object[i] - 1000 + 2 * (batch.subject[i] - 1000) +
                         3 * (row[7] - 2000) + 4 * (row[12] - 3000));
  }
  EXPECT_EQ(digest, 10061790);
}

TEST(IndirectObject, AlternatesTheOrderOfTheNames) {
  const auto batch = indirect_object_batch(reference_sizes());
  for (size_t n = 0; n < 500; ++n) {
    EXPECT_EQ(batch.io_position[n], n % 2 == 0 ? 1 : 3);
    EXPECT_EQ(batch.s1_position[n], n % 2 == 0 ? 3 : 1);
    const auto row = prompt_row(batch, static_cast<int64_t>(n));
    EXPECT_EQ(row[static_cast<size_t>(batch.io_position[n])], batch.indirect_object[n]);
    EXPECT_EQ(row[static_cast<size_t>(batch.s1_position[n])], batch.subject[n]);
    EXPECT_EQ(row[9], batch.subject[n]);
    EXPECT_NE(batch.indirect_object[n], batch.subject[n]);
  }
  EXPECT_THAT(batch.s2_position, Each(9));
  EXPECT_THAT(batch.query, Each(13));
}

TEST(IndirectObject, NeedsNoPlaceWhereThereIsNone) {
  const auto batch = indirect_object_batch(
      {.names = {5, 6}, .prompt = {kFirstName, kSecondName, kSubject, 1}, .examples = 4});
  EXPECT_EQ(batch.tokens.size(1), 4);
}

TEST(IndirectObject, PatternsFindTheNames) {
  const auto options = reference_sizes();
  const auto batch = indirect_object_batch(options);
  const auto patterns = indirect_object_patterns(options.names);
  ASSERT_EQ(patterns.size(), 2u);
  for (int64_t n = 0; n < 20; ++n) {
    const auto row = prompt_row(batch, n);
    EXPECT_THAT(patterns[0].targets(row, 13),
                ElementsAre(batch.io_position[static_cast<size_t>(n)]));
    EXPECT_THAT(patterns[1].targets(row, 13), ElementsAre(9));
    EXPECT_THAT(patterns[1].targets(row, 8), ElementsAre());  // before the subject came again
  }
  EXPECT_EQ(patterns[0].name, "name-mover");
  EXPECT_EQ(patterns[1].name, "s-inhibition");
}

// Made-up heads: a name-mover, an S-inhibition head, one that spreads evenly.
TEST(IndirectObject, ScreensTheUsersPatternsInOneTable) {
  const auto options = reference_sizes();
  const auto batch = indirect_object_batch(options);
  auto patterns = indirect_object_patterns(options.names);
  patterns[0].formed_at_256 = 200;
  const std::span tokens(batch.tokens.const_data_ptr<int64_t>(),
                         static_cast<size_t>(batch.tokens.numel()));
  const auto rows = pattern_screen_rows(tokens, 14, batch.query, patterns);
  const std::vector<HeadId> heads = {{9, 9}, {8, 6}, {0, 0}};
  std::vector<float> weights;
  const auto readings = screen_readings(rows, heads, [&](size_t head) {
    weights.assign(500 * 14, head == 2 ? 1 / 14.f : .2f / 13);
    for (size_t n = 0; n < 500 && head < 2; ++n)
      weights[n * 14 +
              static_cast<size_t>(head == 0 ? batch.io_position[n] : batch.s2_position[n])] = .8f;
    return std::span<const float>(weights);
  });
  const auto screen = screen_heads(patterns, readings, 14, ScreenRules{});
  EXPECT_THAT(screen.circuits[0].members, ElementsAre(HeadId{9, 9}));
  EXPECT_THAT(screen.circuits[1].members, ElementsAre(HeadId{8, 6}));
  EXPECT_DOUBLE_EQ(screen.circuits[0].threshold, 200 * 13 / 255.);
  EXPECT_NEAR(readings[0].patterns[0].selectivity, .8 * 13 / .2, 1e-4);
  EXPECT_NEAR(readings[2].patterns[1].selectivity, 1, 1e-6);
}

TEST(IndirectObject, RefusesWithValueAndFix) {
  const auto refused = [](auto change, const char* message) {
    IndirectObjectOptions options = reference_sizes();
    change(options);
    EXPECT_THAT(error_of<std::invalid_argument>([&] { indirect_object_batch(options); }),
                HasSubstr(message));
  };
  refused([](auto& o) { o.names = {7}; }, "names must hold at least 2 token ids, got 1");
  refused([](auto& o) { o.names = {7, 8, 7}; }, "names holds the token id 7 twice");
  refused([](auto& o) { o.places = {}; }, "places must hold at least 1 token ids, got 0");
  refused([](auto& o) { o.objects = {-4}; }, "objects holds the token id -4");
  refused([](auto& o) { o.prompt[1] = 1; }, "the prompt has no slot kFirstName");
  refused([](auto& o) { o.prompt[0] = kSubject; }, "the slot kSubject twice");
  refused([](auto& o) { o.prompt[0] = -9; }, "the prompt holds -9");
  refused([](auto& o) { std::swap(o.prompt[1], o.prompt[3]); }, "they are at positions 3, 1 and 9");
  refused([](auto& o) { o.examples = 0; }, "examples must be at least 1, got 0");
}

}  // namespace
}  // namespace headscope
