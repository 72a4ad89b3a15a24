#include <gtest/gtest.h>

#include <functional>
#include <ostream>

#include "tests/emulation/attention_problem.h"
#include "tests/emulation/emulated.h"

// launch_attention_mass against plain loops in double, on the emulated device.
namespace headscope::emulation {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr ElementType kTypes[] = {ElementType::kBFloat16, ElementType::kFloat16,
                                  ElementType::kFloat32};

/// Runs a case in the first thread order only, against the reference.
void expect_case(const AttentionCase& c, const char* what = "") {
  SCOPED_TRACE(std::string(what) + " type " + std::to_string(static_cast<int>(c.type)) + " width " +
               std::to_string(c.width) + " keys " + std::to_string(c.keys) + " rows " +
               std::to_string(c.sampled) + " layout " + std::to_string(static_cast<int>(c.layout)));
  AttentionProblem problem(c, /*seed=*/7);
  problem.run();
  problem.expect_matches_reference();
}

/// What a call may say beyond q and k, one by one and all together.
struct Feature {
  const char* name;
  void (*set)(AttentionCase& c);
};
void PrintTo(const Feature& feature, std::ostream* out) { *out << feature.name; }

const Feature kFeatures[] = {
    {"plain", [](AttentionCase&) {}},
    {"not causal", [](AttentionCase& c) { c.is_causal = false; }},
    {"fewer keys than queries", [](AttentionCase& c) { c.keys = 20; }},
    {"more keys than queries",
     [](AttentionCase& c) {
       c.keys = 61;
       c.is_causal = false;
     }},
    {"window", [](AttentionCase& c) { c.window = 5; }},
    {"window of one", [](AttentionCase& c) { c.window = 1; }},
    {"window, not causal",
     [](AttentionCase& c) {
       c.window = 6;
       c.is_causal = false;
     }},
    {"endless window",
     [](AttentionCase& c) {
       c.window = std::numeric_limits<int64_t>::max();
       c.is_causal = false;
     }},
    {"softcap", [](AttentionCase& c) { c.softcap = 1.5; }},
    {"scale", [](AttentionCase& c) { c.scale = -0.3; }},
    {"documents", [](AttentionCase& c) { c.has_documents = true; }},
    {"sinks", [](AttentionCase& c) { c.has_sinks = true; }},
    {"mask", [](AttentionCase& c) { c.bias = BiasKind::kMask; }},
    {"broadcast mask",
     [](AttentionCase& c) {
       c.bias = BiasKind::kMask;
       c.bias_is_broadcast = true;
     }},
    {"bias f32", [](AttentionCase& c) { c.bias = BiasKind::kFloat32; }},
    {"bias bf16", [](AttentionCase& c) { c.bias = BiasKind::kBFloat16; }},
    {"bias f16", [](AttentionCase& c) { c.bias = BiasKind::kFloat16; }},
    {"broadcast sequence", [](AttentionCase& c) { c.batch_is_broadcast = true; }},
    {"all",
     [](AttentionCase& c) {
       c.window = 9;
       c.softcap = 4;
       c.has_documents = c.has_sinks = true;
       c.bias = BiasKind::kFloat16;
       c.is_causal = false;
     }},
};

class AttentionMassFeature : public ::testing::TestWithParam<std::tuple<Feature, ElementType>> {};

TEST_P(AttentionMassFeature, MatchesDoubleReferenceInEveryThreadOrder) {
  const auto& [feature, type] = GetParam();
  for (const bool has_saved_sums : {false, true}) {
    AttentionCase c;
    c.type = type;
    c.batch = kIsRaceChecked ? 1 : 2;
    c.query_heads = kIsRaceChecked ? 2 : 4;
    c.key_heads = c.query_heads / 2;
    c.width = 24;
    c.sampled = kIsRaceChecked ? 2 : 7;
    c.keys_per_split = 16;
    c.has_saved_sums = has_saved_sums;
    feature.set(c);
    AttentionProblem problem(c, /*seed=*/7);
    std::vector<uint32_t> first;
    for (const ThreadOrder& order : thread_orders()) {
      const OrderScope scope(order);
      problem.run();
      if (first.empty()) {
        problem.expect_matches_reference();
        first = problem.result_bits();
      }
      EXPECT_EQ(problem.result_bits(), first) << "the bits depend on the order " << order.name;
    }
  }
}

std::string feature_name(const ::testing::TestParamInfo<std::tuple<Feature, ElementType>>& info) {
  std::string name = std::get<0>(info.param).name;
  for (char& letter : name)
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  return name + "_" + std::to_string(static_cast<int>(std::get<1>(info.param)));
}

std::vector<Feature> features() {
  if (!kIsRaceChecked) return {std::begin(kFeatures), std::end(kFeatures)};
  return {kFeatures[0], *std::prev(std::end(kFeatures))};
}

INSTANTIATE_TEST_SUITE_P(Features, AttentionMassFeature,
                         ::testing::Combine(::testing::ValuesIn(features()),
                                            ::testing::ValuesIn(kTypes)),
                         feature_name);

class AttentionMassType : public ::testing::TestWithParam<ElementType> {};
INSTANTIATE_TEST_SUITE_P(Types, AttentionMassType, ::testing::ValuesIn(kTypes));

TEST_P(AttentionMassType, MatchesAtEveryWidthInEveryLayout) {
  if (kIsRaceChecked) GTEST_SKIP() << "many threads; layouts share no memory between them";
  for (const Layout layout :
       {Layout::kContiguous, Layout::kTokensFirst, Layout::kMisaligned, Layout::kSteppedWidth}) {
    for (const int width : {1, 7, 8, 16, 31, 33, 64, 65, 80, 128, 129, 200, 256}) {
      AttentionCase c;
      c.type = GetParam();
      c.layout = layout;
      c.width = width;
      c.query_heads = 2;
      c.queries = c.keys = 19;
      expect_case(c);
    }
  }
}

TEST_P(AttentionMassType, MatchesAtEveryLengthAndNumberOfRows) {
  if (kIsRaceChecked) GTEST_SKIP() << "many threads; lengths change no pattern of access";
  for (const int length : {1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 129}) {
    for (const int sampled : {1, 15, 16, 17, 33}) {
      AttentionCase c;
      c.type = GetParam();
      c.width = 16;
      c.queries = c.keys = length;
      c.sampled = sampled;
      c.keys_per_split = length > 64 ? 24 : 0;
      expect_case(c);
    }
  }
}

TEST_P(AttentionMassType, MatchesWithMoreSplitsThanLanes) {
  AttentionCase c;
  c.type = GetParam();
  c.width = 8;
  c.queries = c.keys = kIsRaceChecked ? 20 : 300;
  c.keys_per_split = 8;
  c.is_causal = false;
  expect_case(c);
}

TEST_P(AttentionMassType, SharesKeyHeads) {
  if (kIsRaceChecked) GTEST_SKIP() << "many threads; heads share no memory that is written";
  AttentionCase c;
  c.type = GetParam();
  c.batch = 2;
  c.query_heads = 6;
  c.width = 16;
  for (const int key_heads : {1, 2, 3, 6}) {
    c.key_heads = key_heads;
    expect_case(c, "shared heads");
  }
}

TEST_P(AttentionMassType, IsExactOnSmallIntegers) {
  AttentionCase c;
  c.type = GetParam();
  c.width = 48;
  c.scale = 1;
  c.sampled = 16;
  c.query_heads = 2;
  c.has_integers = true;
  AttentionProblem problem(c, /*seed=*/5);
  problem.run();
  for (int h = 0; h < c.query_heads; ++h) {
    for (int r = 0; r < c.sampled; ++r) {
      const int64_t t = problem.rows[static_cast<std::size_t>(r)];
      if (t < 0 || t >= c.queries) continue;
      const std::vector<double> scores = problem.plain.scores(0, h, t);
      const auto index = static_cast<std::size_t>(h * c.sampled + r);
      EXPECT_EQ(problem.results().max_logit[index],
                *std::max_element(scores.begin(), scores.end()));
      // Group 0 is the query's own position: one score, and ln 1 = 0.
      EXPECT_EQ(problem.results().score[index * AttentionProblem::kGroups],
                scores[static_cast<std::size_t>(t)]);
    }
  }
}

TEST_P(AttentionMassType, SpoilsOnlyRowsThatSeeABadNumber) {
  if (kIsRaceChecked) GTEST_SKIP() << "many threads; numbers change no pattern of access";
  AttentionCase c;
  c.type = GetParam();
  c.batch = 2;
  c.width = 40;
  c.sampled = 12;
  c.keys_per_split = 16;
  for (const double bad : {kNaN, kInfinity, -kInfinity}) {
    AttentionProblem problem(c, /*seed=*/9);
    // Key 20 of sequence 0: rows before it do not see it, sequence 1 has keys of its own.
    problem.plain.k[20 * 40 + 3] = bad;
    problem.run();
    problem.expect_matches_reference();
  }
}

TEST_P(AttentionMassType, SpoiltQuerySpoilsItsRowOnly) {
  AttentionCase c;
  c.type = GetParam();
  c.sampled = 9;
  AttentionProblem problem(c, /*seed=*/9);
  problem.plain.q[static_cast<std::size_t>((c.queries - 1) * c.width)] = kNaN;
  problem.run();
  EXPECT_TRUE(std::isnan(problem.results().log_sum_exp[0]));
  problem.expect_matches_reference();
}

TEST_P(AttentionMassType, SinksThatAreNotFinite) {
  AttentionCase c;
  c.type = GetParam();
  c.query_heads = 3;
  c.width = 16;
  c.has_sinks = true;
  AttentionProblem problem(c, /*seed=*/3);
  problem.plain.sinks = {kNaN, kInfinity, -kInfinity};
  problem.run();
  problem.expect_matches_reference();
}

TEST_P(AttentionMassType, RowsWithoutAKeyToSee) {
  AttentionCase c;
  c.type = GetParam();
  c.width = 16;
  c.bias = BiasKind::kMask;
  c.has_sinks = true;
  for (const bool has_saved_sums : {false, true}) {
    c.has_saved_sums = has_saved_sums;
    AttentionProblem problem(c, /*seed=*/3);
    std::fill(problem.plain.bias.begin(), problem.plain.bias.end(), -kInfinity);
    problem.run();
    EXPECT_EQ(problem.results().log_sum_exp[0], -kInfinity);
    problem.expect_matches_reference();
  }
}

TEST_P(AttentionMassType, TrustsNoPosition) {
  AttentionCase c;
  c.type = GetParam();
  c.width = 16;
  c.sampled = 4;
  for (const bool has_saved_sums : {false, true}) {
    c.has_saved_sums = has_saved_sums;
    AttentionProblem problem(c, /*seed=*/3);
    problem.rows = {36, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(),
                    20};
    problem.targets[3] = c.keys;  // within the even keys of row 36
    problem.targets[1] = std::numeric_limits<int64_t>::min();
    problem.offsets[16] = problem.offsets[15] - 1;  // row 20: a group that descends, one that
                                                    // begins before the last one's end
    problem.offsets[19] = std::numeric_limits<int64_t>::max();
    problem.run();
    problem.expect_matches_reference();
    EXPECT_TRUE(std::isnan(problem.results().mass[2]));
  }
}

TEST(AttentionMassLauncher, RefusesWhatItCannotDo) {
  kernels::AttentionMassProblem good;
  good.batch = good.query_heads = good.key_heads = good.queries = good.keys = good.sampled = 1;
  good.width = 8;
  const auto status_of = [&](const std::function<void(kernels::AttentionMassProblem&)>& change,
                             std::size_t bytes = 1 << 20) {
    kernels::AttentionMassProblem problem = good;
    change(problem);
    return kernels::launch_attention_mass(problem, {}, nullptr, bytes, nullptr);
  };
  using Problem = kernels::AttentionMassProblem;
  EXPECT_EQ(status_of([](Problem& p) { p.width = 257; }), kernels::kInvalidValue);
  EXPECT_EQ(status_of([](Problem& p) { p.width = 0; }), kernels::kInvalidValue);
  EXPECT_EQ(status_of([](Problem& p) { p.keys = -1; }), kernels::kInvalidValue);
  EXPECT_EQ(status_of([](Problem& p) { p.key_heads = 0; }), kernels::kInvalidValue);
  EXPECT_EQ(status_of([](Problem& p) { p.query_heads = 3, p.key_heads = 2; }),
            kernels::kInvalidValue);
  EXPECT_EQ(status_of([](Problem&) {}, 0), kernels::kInvalidValue);
  EXPECT_EQ(status_of([](Problem& p) { p.sampled = 0; }), 0);
  EXPECT_EQ(status_of([](Problem& p) { p.batch = 0; }), 0);
}

}  // namespace
}  // namespace headscope::emulation
