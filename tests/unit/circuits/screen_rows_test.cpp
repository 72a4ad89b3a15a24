#include "headscope/screen_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <stdexcept>

#include "tests/support/errors.h"

namespace headscope {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr auto kOrdinary = ScreenControls::kOrdinary;
constexpr auto kReference50 = ScreenControls::kReference50;

std::vector<int64_t> targets_of(const ScreenRows& rows, const std::string& pattern, size_t row) {
  for (const auto& targets : rows.patterns)
    if (targets.pattern == pattern) return targets.positions[row];
  return {-1};
}

int64_t sum_of(const std::vector<int64_t>& values) {
  return std::accumulate(values.begin(), values.end(), int64_t{0});
}

TEST(PlantedScreenRows, AskFromTheLastToken) {
  const std::vector<int64_t> pairs = {94, 117};
  const auto rows = planted_screen_rows(pairs, 256, kOrdinary);
  EXPECT_THAT(rows.query, ElementsAre(255, 255));
  EXPECT_THAT(targets_of(rows, "induction", 1), ElementsAre(118));
  EXPECT_THAT(targets_of(rows, "duplicate-token", 1), ElementsAre(117));
  EXPECT_THAT(targets_of(rows, "previous-token", 0), ElementsAre(254));
  EXPECT_THAT(targets_of(rows, "self", 0), ElementsAre(255));
  EXPECT_THAT(targets_of(rows, "first-token", 0), ElementsAre(0));
  EXPECT_THAT(targets_of(rows, "local", 0), ElementsAre(250, 251, 252, 253));
}

TEST(PlantedScreenRows, OrdinaryControlsAreNoTargets) {
  const auto rows = planted_screen_rows(std::vector<int64_t>{94}, 256, kOrdinary);
  EXPECT_EQ(rows.controls[0].size(), 255u - 6u - 2u);
  EXPECT_THAT(rows.controls[0], Not(Contains(94)));
  EXPECT_THAT(rows.controls[0], Not(Contains(95)));
  EXPECT_EQ(rows.controls[0].back(), 249);
}

TEST(PlantedScreenRows, LeaveOutAPairThatDoesNotStandAlone) {
  std::vector<int64_t> tokens(4 * 32);
  std::iota(tokens.begin(), tokens.end(), 100);
  const std::vector<int64_t> pairs = {4, 5, 6, 7};
  for (size_t r = 0; r < 4; ++r) tokens[r * 32 + 31] = tokens[r * 32 + 4 + r];
  tokens[1 * 32 + 20] = tokens[1 * 32 + 5];  // a second A
  tokens[2 * 32 + 20] = tokens[2 * 32 + 7];  // a second B
  const auto rows = planted_screen_rows(pairs, 32, kOrdinary, tokens);
  for (const char* pattern : {"induction", "duplicate-token"}) {
    EXPECT_EQ(targets_of(rows, pattern, 0).size(), 1u);
    EXPECT_TRUE(targets_of(rows, pattern, 1).empty());
    EXPECT_TRUE(targets_of(rows, pattern, 2).empty());
    EXPECT_EQ(targets_of(rows, pattern, 3).size(), 1u);
  }
  EXPECT_THAT(targets_of(rows, "previous-token", 1), ElementsAre(30));
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [&] { planted_screen_rows(pairs, 32, kOrdinary, std::span(tokens).first(96)); }),
              HasSubstr("96 tokens are not 4 rows of 32"));
}

// numpy's RandomState(0), as published.
TEST(PlantedScreenRows, ShareTheReferencesControls) {
  const auto rows = planted_screen_rows(std::vector<int64_t>{173, 20}, 256, kReference50);
  EXPECT_EQ(rows.controls[0], rows.controls[1]);
  EXPECT_EQ(rows.controls[0].size(), 50u);
  EXPECT_EQ(rows.controls[0][0], 173);  // a planted token: the reference does not leave it out
  EXPECT_EQ(rows.controls[0][49], 204);
  EXPECT_EQ(planted_screen_rows(std::vector<int64_t>{4}, 16, kReference50).controls[0].size(), 9u);
}

// Drawn with numpy's RandomState(0) by the reference's loop over these rows, one after the other.
TEST(NaturalScreenRows, DrawTheReferencesControls) {
  const auto rows =
      natural_screen_rows(std::vector<int64_t>{30, 3, 94, 2, 21, 1},
                          std::vector<int64_t>{200, 40, 255, 9, 60, 7}, 256, kReference50);
  const int64_t sums[] = {5232, 1110, 6300, 50, 1349, 50};
  const int64_t lasts[] = {106, 29, 84, 1, 43, 1};
  for (size_t r = 0; r < 6; ++r) {
    EXPECT_EQ(rows.controls[r].size(), 50u);
    EXPECT_EQ(sum_of(rows.controls[r]), sums[r]) << r;
    EXPECT_EQ(rows.controls[r].back(), lasts[r]) << r;
  }
  EXPECT_EQ(rows.controls[1][0], 32);
  EXPECT_THAT(targets_of(rows, "local", 0), ElementsAre(195, 196, 197, 198));
  EXPECT_THAT(targets_of(rows, "previous-token", 0), ElementsAre(199));
  EXPECT_THAT(targets_of(rows, "induction", 0), ElementsAre(31));
}

TEST(PatternScreenRows, AskThePatternsTargets) {
  std::vector<int64_t> tokens(2 * 32);
  std::iota(tokens.begin(), tokens.end(), 100);
  tokens[20] = tokens[9];             // row 0: A at 9 and 20
  tokens[32 + 25] = tokens[32 + 14];  // row 1: at 14 and 25
  const std::vector<int64_t> query = {20, 25};
  const auto rows = pattern_screen_rows(tokens, 32, query, standard_patterns());
  const auto natural = natural_screen_rows(std::vector<int64_t>{9, 14}, query, 32, kOrdinary);
  for (size_t p = 0; p < 6; ++p) {
    EXPECT_EQ(rows.patterns[p].pattern, natural.patterns[p].pattern);
    for (size_t r = 0; r < 2; ++r)
      EXPECT_THAT(rows.patterns[p].positions[r],
                  ::testing::UnorderedElementsAreArray(natural.patterns[p].positions[r]));
  }
  EXPECT_EQ(rows.controls, natural.controls);
}

TEST(PatternScreenRows, RefuseWithRowAndValue) {
  const std::vector<int64_t> tokens(32, 7);
  Pattern ahead;
  ahead.name = "ahead";
  ahead.targets = [](std::span<const int64_t>, int64_t query) {
    return std::vector<int64_t>{query + 1};
  };
  const std::vector patterns = {ahead};
  const auto refused = [&](std::vector<int64_t> query, int64_t context, const char* message) {
    EXPECT_THAT(error_of<std::invalid_argument>(
                    [&] { pattern_screen_rows(tokens, context, query, patterns); }),
                HasSubstr(message));
  };
  refused({20}, 32, "pattern ahead has the target 21 in row 0, whose query is at 20");
  refused({32}, 32, "row 0 has its query at 32");
  refused({5, 5}, 32, "32 tokens are not 2 rows of 32");
  refused({}, 32, "no rows");
}

TEST(ScreenRows, RefuseWithRowAndValue) {
  const auto refused = [](std::vector<int64_t> first, std::vector<int64_t> query,
                          const char* message) {
    EXPECT_THAT(
        error_of<std::invalid_argument>([&] { natural_screen_rows(first, query, 64, kOrdinary); }),
        HasSubstr(message));
  };
  refused({3, 8}, {40, 9}, "row 1 has the pair at 8 and the query at 9");
  refused({3}, {64}, "6 <= query < 64");
  refused({3}, {5}, "the query at 5");
  refused({3}, {40, 41}, "first has 1 rows, query 2");
  refused({}, {}, "no rows");
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [] { planted_screen_rows(std::vector<int64_t>{4}, 15, kOrdinary); }),
              HasSubstr("at least 16 to tell six patterns apart, got 15"));
}

/// Readings of heads that attend by a rule over (row, position).
std::vector<HeadReading> readings_by(const ScreenRows& rows, size_t heads,
                                     const std::function<double(size_t, size_t, int64_t)>& rule) {
  std::vector<HeadId> ids(heads);
  std::vector<float> weights;
  return screen_readings(rows, ids, [&](size_t head) {
    weights.clear();
    for (size_t r = 0; r < rows.query.size(); ++r)
      for (int64_t t = 0; t < rows.context; ++t)
        weights.push_back(static_cast<float>(rule(head, r, t)));
    return std::span<const float>(weights);
  });
}

TEST(ScreenReadings, AUniformHeadReadsOneWhateverTheQueries) {
  const auto rows = natural_screen_rows(std::vector<int64_t>{20, 30, 22},
                                        std::vector<int64_t>{60, 200, 250}, 256, kOrdinary);
  const auto head = readings_by(rows, 1, [&](size_t, size_t r, int64_t t) {
    return t <= rows.query[r] ? 1. / static_cast<double>(rows.query[r] + 1) : 0.;
  })[0];
  for (const auto& reading : head.patterns) EXPECT_NEAR(reading.selectivity, 1, 1e-6);
  EXPECT_NEAR(head.patterns[0].mass, (1 / 61. + 1 / 201. + 1 / 251.) / 3, 1e-7);
  EXPECT_NEAR(head.patterns[5].mass, 4 * head.patterns[0].mass, 1e-7);
}

// Protocol: 420 of the 2000 planted B lie within the shared controls, 1 / (420 / 2000 / 50) = 238.
TEST(ScreenReadings, APerfectHeadMeetsTheReferencesCeiling) {
  const std::vector<int64_t> pairs = {47, 60, 61, 62, 63};  // B of the first at 48, a control
  const auto rows = planted_screen_rows(pairs, 256, kReference50);
  const auto heads = readings_by(rows, 2, [&](size_t head, size_t r, int64_t t) {
    return t == (head == 0 ? pairs[r] + 1 : 254) ? 1. : 0.;
  });
  EXPECT_NEAR(heads[0].patterns[0].selectivity, 1 / (1 / 5. / 50), 1e-9);
  EXPECT_NEAR(heads[1].patterns[1].selectivity, 1e8, 1e-3);  // the floor of the controls
}

TEST(ScreenReadings, NaNStaysWithItsHead) {
  const auto rows = planted_screen_rows(std::vector<int64_t>{20, 30}, 64, kOrdinary);
  const auto heads = readings_by(rows, 2, [](size_t head, size_t, int64_t t) {
    return head == 0 && t == 31 ? kNaN : 1 / 64.;
  });
  EXPECT_TRUE(std::isnan(heads[0].patterns[0].selectivity));
  EXPECT_NEAR(heads[1].patterns[0].selectivity, 1, 1e-6);
}

TEST(ScreenReadings, RefuseAnotherSize) {
  const auto rows = planted_screen_rows(std::vector<int64_t>{20, 30}, 64, kOrdinary);
  const std::vector<HeadId> ids(1);
  const std::vector<float> weights(127);
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [&] { screen_readings(rows, ids, [&](size_t) { return std::span(weights); }); }),
              HasSubstr("must be [2, 64] = 128 values, got 127"));
}

}  // namespace
}  // namespace headscope
