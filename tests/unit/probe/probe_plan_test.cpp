#include "csrc/probe/probe_plan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/models/pinned_patterns.h"

namespace headscope {
namespace {

struct Planned {
  InductionBatch batch;
  ProbePlan plan;
};

Planned make_plan(ControlPositions controls = ControlPositions::kMeasuredWithoutSpecial,
                  int64_t context = 64) {
  const ProbeOptions options = resolved({.vocab_size = 512,
                                         .context = context,
                                         .examples = 20,
                                         .micro_batch = 8,
                                         .patterns = testing::pinned_patterns(),
                                         .controls = controls,
                                         .whole_every = 1});
  const InductionBatch batch = induction_batch({.examples = 20,
                                                .context = context,
                                                .token_low = options.token_low,
                                                .token_high = options.token_high});
  return {batch, plan_probe(batch.tokens, options)};
}

std::vector<int64_t> group(const ProbePlan& plan, int64_t example, int64_t index) {
  const auto& chunk = plan.chunks[static_cast<size_t>(example / 8)];
  const int64_t at = (example % 8) * plan.groups + index;
  const int64_t begin = chunk.offsets[at].item<int64_t>(),
                end = chunk.offsets[at + 1].item<int64_t>();
  std::vector<int64_t> positions;
  for (int64_t i = begin; i < end; ++i) positions.push_back(chunk.targets[i].item<int64_t>());
  return positions;
}

using Positions = std::vector<int64_t>;

TEST(ProbePlan, AsksForTheProtocolsTargets) {
  const auto [batch, plan] = make_plan();
  for (int64_t n = 0; n < 20; ++n) {
    const int64_t a = batch.pair_position[static_cast<size_t>(n)];
    EXPECT_EQ(group(plan, n, plan.target_group(0)), Positions({a + 1}));
    EXPECT_EQ(group(plan, n, plan.target_group(1)), Positions({62}));
    EXPECT_EQ(group(plan, n, plan.target_group(2)), Positions({a}));
    EXPECT_EQ(group(plan, n, plan.target_group(3)), Positions({0}));
    EXPECT_EQ(group(plan, n, plan.target_group(4)), Positions({63}));
    EXPECT_EQ(group(plan, n, plan.target_group(5)), Positions({58, 59, 60, 61}));
  }
}

TEST(ProbePlan, ControlsLeaveOutSpecialPositions) {
  const auto [batch, plan] = make_plan();
  for (int64_t n = 0; n < 20; ++n) {
    const int64_t a = batch.pair_position[static_cast<size_t>(n)];
    const Positions controls = group(plan, n, plan.control_group());
    EXPECT_EQ(controls.size(), 64u - 1 - 6 - 2);
    for (const int64_t special : {int64_t{0}, int64_t{58}, int64_t{63}, a, a + 1}) {
      EXPECT_EQ(std::count(controls.begin(), controls.end(), special), 0) << special;
    }
  }
}

TEST(ProbePlan, ReferenceControlsAreTheFixedFifty) {
  const auto [batch, plan] = make_plan(ControlPositions::kReference50);
  EXPECT_EQ(group(plan, 3, plan.control_group()), reference_control_positions(64));
}

TEST(ProbePlan, PermutedPatternsShareTheColumnsOfEveryRowsTargets) {
  const auto [batch, plan] = make_plan();
  std::set<int64_t> columns;
  for (int64_t c = 0; c < plan.candidate_sets; ++c)
    columns.insert(group(plan, 0, plan.candidate_group(c)).at(0));
  for (int64_t n = 0; n < 20; ++n) {
    const int64_t a = batch.pair_position[static_cast<size_t>(n)];
    EXPECT_TRUE(columns.contains(a) && columns.contains(a + 1));
    EXPECT_EQ(group(plan, n, plan.candidate_group(plan.candidate[0][static_cast<size_t>(n)])),
              Positions({a + 1}));
  }
  EXPECT_EQ(plan.candidate[1][0], -1);  // previous-token is no permuted pattern
}

TEST(ProbePlan, AQuarterOfTheExamplesComesFirst) {
  for (const int64_t examples : {20, 64, 65, 200}) {
    const ProbeOptions options = resolved({.vocab_size = 512, .context = 64, .examples = examples});
    const at::Tensor tokens = random_tokens(examples, 64, 0, 512, 1);
    const ProbePlan plan = plan_probe(tokens, options);
    EXPECT_EQ(plan.examples_in(1), (examples + 3) / 4);
    EXPECT_EQ(plan.examples_in(plan.chunks.size()), examples);
    ASSERT_EQ(plan.queries.chunks.size(), plan.chunks.size());
    for (size_t c = 0; c < plan.chunks.size(); ++c)
      EXPECT_EQ(plan.queries.chunks[c].rows.size(0), plan.chunks[c].tokens.size(0));
  }
}

TEST(ProbePlan, AsksOnlyForWhatLiesWithinTheWindow) {
  ProbeOptions options = resolved({.vocab_size = 512,
                                   .context = 64,
                                   .examples = 8,
                                   .patterns = testing::pinned_patterns(),
                                   .whole_every = 1,
                                   .window = 20});
  const InductionBatch batch = induction_batch(
      {.examples = 8, .context = 64, .token_low = 0, .token_high = 8, .window = 20});
  const ProbePlan plan = plan_probe(batch.tokens, options);  // few tokens: chance occurrences
  for (int64_t n = 0; n < 8; ++n) {
    const auto induction = group(plan, n, plan.target_group(0));
    const int64_t a = batch.pair_position[static_cast<size_t>(n)];
    EXPECT_EQ(std::count(induction.begin(), induction.end(), a + 1), 1);
    for (int64_t g = 0; g < plan.groups; ++g) {
      if (g == plan.target_group(3)) continue;  // first-token: 0, wherever the window ends
      for (const int64_t t : group(plan, n, g)) EXPECT_GE(t, 64 - 20) << g;
    }
  }
}

TEST(ProbePlan, CountsTheRowsBeyondTheMostCandidateSets) {
  const int64_t rows = ProbePlan::kMaxCandidateSets + 88;
  ProbeOptions options = resolved({.vocab_size = 1024, .context = 640, .examples = rows});
  options.patterns = {
      {.name = "named by the first token", .targets = [](std::span<const int64_t> tokens, int64_t) {
         return std::vector<int64_t>{tokens[0] + 1};
       }}};
  at::Tensor tokens = at::zeros({rows, 640}, at::kLong);
  tokens.select(1, 0).copy_(at::arange(rows, at::kLong));
  const ProbePlan plan = plan_probe(tokens, options);
  EXPECT_EQ(plan.candidate_sets, ProbePlan::kMaxCandidateSets);
  EXPECT_EQ(plan.left_out, std::vector<int64_t>{88});
  EXPECT_EQ(std::count(plan.candidate[0].begin(), plan.candidate[0].end(), -1), 88);
}

TEST(QueryPlan, AsksForPositionPatternsAtOneQueryInEachStretch) {
  const auto [batch, plan] = make_plan();
  const QueryPlan& queries = plan.queries;
  EXPECT_EQ(queries.patterns, (std::vector<size_t>{1, 3, 4, 5}));
  ASSERT_EQ(queries.queries, 4);
  std::set<int64_t> asked;
  double inverse = 0;
  for (const auto& chunk : queries.chunks) {
    for (int64_t n = 0; n < chunk.rows.size(0); ++n) {
      for (int64_t q = 0; q < 4; ++q) {
        const int64_t query = chunk.rows[n][q].item<int64_t>();
        EXPECT_GE(query, 16 + q * 47 / 4);
        EXPECT_LT(query, 16 + (q + 1) * 47 / 4);
        asked.insert(query);
        inverse += 1 / static_cast<double>(query);
        const auto keys = [&](int64_t group) {
          const int64_t at = (n * 4 + q) * queries.groups() + group;
          std::vector<int64_t> positions;
          for (int64_t i = chunk.offsets[at].item<int64_t>();
               i < chunk.offsets[at + 1].item<int64_t>(); ++i)
            positions.push_back(chunk.targets[i].item<int64_t>());
          return positions;
        };
        EXPECT_EQ(keys(queries.target_group(0)), Positions({query - 1}));
        EXPECT_EQ(keys(queries.target_group(1)), Positions({0}));
        EXPECT_EQ(keys(queries.target_group(3)),
                  Positions({query - 5, query - 4, query - 3, query - 2}));
        EXPECT_EQ(keys(queries.beside_group(0)), Positions({query - 3, query - 2, query}));
        EXPECT_EQ(keys(queries.beside_group(1)), Positions({1, 2, 3}));
        EXPECT_EQ(keys(queries.beside_group(3)),
                  Positions({query - 7, query - 6, query - 1, query}));
        for (const int64_t key : keys(queries.ordinary_group()))
          EXPECT_TRUE(key > 0 && key < query - 5) << key;
      }
    }
  }
  EXPECT_GT(asked.size(), 20u);  // not the same positions in every row
  EXPECT_EQ(queries.span, 1 + std::lround(80 / inverse));
  EXPECT_EQ(plan.contexts(),
            (std::vector<int64_t>{64, queries.span, 64, queries.span, queries.span, queries.span}));
}

TEST(QueryPlan, IsNoneWithTheReferencesControlsOrOnRequest) {
  const auto [batch, plan] = make_plan(ControlPositions::kReference50);
  EXPECT_EQ(plan.queries.queries, 0);
  EXPECT_EQ(plan.place_in_queries(1), -1);
  EXPECT_EQ(plan.contexts(), std::vector<int64_t>(6, 64));
}

TEST(ProbePlan, TargetsOfTheUsersOwnPatternAreCleaned) {
  ProbeOptions options = resolved(
      {.vocab_size = 64, .context = 16, .examples = 8, .patterns = testing::pinned_patterns()});
  options.patterns.push_back({.name = "mine", .targets = [](auto, int64_t query) {
                                return std::vector<int64_t>{query + 3, 2, 2, -1};
                              }});
  const ProbePlan plan = plan_probe(random_tokens(8, 16, 0, 64, 1), options);
  EXPECT_EQ(plan.target_count[6], std::vector<int64_t>(8, 1));
}

}  // namespace
}  // namespace headscope
