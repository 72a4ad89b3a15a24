#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "csrc/monitor/passes/behaviour.h"
#include "tests/simulation/runs.h"
#include "tests/simulation/simulated_verdicts.h"
#include "tests/support/long_tests.h"

// docs/validation.md, Simulated verdicts: the tables are this program's output.
namespace headscope::simulation {
namespace {

using enum CircuitState;

constexpr double kLevel = .05;  // VerdictRule::level

Table& verdict_table() {
  static auto* table = static_cast<Table*>(::testing::AddGlobalTestEnvironment(
      new Table({"case", "layout", "rows", "attempts", "runs with `verified`", "`not_causal`",
                 "`unspecific`", "`inconclusive`"})));
  return *table;
}

Table& coverage_table() {
  static auto* table = static_cast<Table*>(::testing::AddGlobalTestEnvironment(
      new Table({"losses", "distinct rows", "runs whose interval holds the effect"})));
  return *table;
}

const Table* const kTables[] = {&verdict_table(), &coverage_table()};

const Layout k3Of16{{{3, 16}}}, k5Of16{{{5, 16}}}, k6Of8{{{6, 8}}}, k2Of4{{{2, 4}}},
    k1Of4{{{1, 4}}}, k1Of8{{{1, 8}}}, kTwoLayers{{{2, 8}, {1, 8}}};

/// What the runs of a case came to: `verified` ever, the others at the end.
struct Outcome {
  Share verified;
  std::map<CircuitState, int64_t> last;
  std::vector<Judged> runs;
};

Outcome run_case(const VerdictCase& of, int64_t runs) {
  Outcome outcome{{0, runs}, {}, std::vector<Judged>(static_cast<size_t>(runs))};
  each_run(runs, testing::run_long_tests() ? 2 : 1, [&](int64_t run) {
    outcome.runs[static_cast<size_t>(run)] = judge_run(of, 5000 + static_cast<uint64_t>(run));
  });
  for (const Judged& judged : outcome.runs) {
    outcome.verified.hits += judged.ever_verified ? 1 : 0;
    ++outcome.last[judged.last];
  }
  verdict_table().add(
      {of.name, of.layout.name(), std::to_string(of.rows), std::to_string(of.attempts),
       outcome.verified.text(), std::to_string(outcome.last[kNotCausal]),
       std::to_string(outcome.last[kUnspecific]), std::to_string(outcome.last[kInconclusive])});
  return outcome;
}

/// Runs of a case: so many in the short form, 400 in the long one.
int64_t runs_of(int64_t in_short) { return runs_or(testing::run_long_tests() ? 400 : in_short); }

class NoCircuit : public ::testing::TestWithParam<VerdictCase> {};

TEST_P(NoCircuit, IsSeldomVerified) {
  Outcome outcome = run_case(GetParam(), runs_of(40));
  EXPECT_LE(outcome.verified.low(), kLevel) << outcome.verified.text();
}

std::vector<VerdictCase> exchangeable_cases() {
  std::vector<VerdictCase> cases;
  for (const Layout& layout : {k3Of16, k5Of16, k6Of8, k1Of8, kTwoLayers})
    for (const double mean : {0., .5})
      cases.push_back({"exchangeable sets, mean " + std::to_string(mean).substr(0, 3) + ", sd .5",
                       layout, exchangeable_sets(mean, .5, false)});
  for (const Layout& layout : {k3Of16, k6Of8})
    cases.push_back({"exchangeable heads, sd .5", layout, exchangeable_heads(0, .5)});
  for (const Layout& layout : {k3Of16, k5Of16, k6Of8, kTwoLayers}) {
    VerdictCase of{"exchangeable sets, the same at each attempt", layout,
                   exchangeable_sets(.2, .5, false)};
    of.attempts = 6;
    cases.push_back(of);
    of.name = "exchangeable sets, fresh at each attempt";
    of.world = exchangeable_sets(.2, .5, true);
    cases.push_back(of);
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Exchangeable, NoCircuit, ::testing::ValuesIn(exchangeable_cases()));

TEST(Verdicts, NegativeControlsDoNotVerifyAnEffectOfNothing) {
  Outcome outcome =
      run_case({"effect .01, controls -.40", k3Of16, given(.01, [](const Heads&) { return -.4; })},
               runs_of(60));
  EXPECT_EQ(outcome.verified.hits, 0);
}

TEST(Verdicts, ALargeEffectBesideALargerControlIsUnspecific) {
  const auto other = [](const Heads& set) { return set[0].head == 3 ? 9.2 : .1; };
  Outcome outcome =
      run_case({"effect 3.0, controls .1, .1, 9.2", k1Of4, given(3, other)}, runs_of(60));
  EXPECT_EQ(outcome.last[kUnspecific], outcome.verified.runs);
}

TEST(Verdicts, AnEffectLikeItsOneControlsIsUnspecific) {
  Outcome outcome = run_case(
      {"effect .43, control .417", k2Of4, given(.43, [](const Heads&) { return .417; }), 128},
      runs_of(60));
  EXPECT_EQ(outcome.verified.hits, 0);
  EXPECT_EQ(outcome.last[kNotCausal], 0);
}

TEST(Verdicts, NoEffectIsNotCausal) {
  for (const double spread : {.2, .5}) {
    Outcome outcome = run_case({"no effect, examples' sd " + std::to_string(spread).substr(1, 2),
                                k3Of16, sum_of_heads(0, .02), 64, spread},
                               runs_of(40));
    EXPECT_LE(outcome.verified.low(), kLevel);
    if (spread < .3) {
      EXPECT_GE(Share({outcome.last[kNotCausal], outcome.verified.runs}).high(), .95);
    }
  }
}

TEST(Verdicts, ASingleHeadOfEightCannotBeVerified) {
  Outcome outcome =
      run_case({"effect 2.0 of a true circuit", k1Of8, sum_of_heads(2, .02)}, runs_of(20));
  EXPECT_EQ(outcome.verified.hits, 0);
  for (const Judged& run : outcome.runs)
    EXPECT_THAT(run.reports[0].reason, ::testing::HasSubstr("too few heads"));
}

TEST(Verdicts, ATrueCircuitIsVerified) {
  for (const Layout& layout : {k3Of16, k5Of16, k6Of8, kTwoLayers}) {
    for (const int64_t rows : {16, 64, 128}) {
      for (const double effect : {.3, 1., 2.}) {
        if (!testing::run_long_tests() && (rows != 64 || effect != 1)) continue;
        Outcome outcome =
            run_case({"effect " + std::to_string(effect).substr(0, 3) + " of a true circuit",
                      layout, sum_of_heads(effect, .02), rows},
                     runs_of(10));
        EXPECT_EQ(outcome.last[kNotCausal], 0);
        // Of 6 heads of 8 others with 5 of them come within a sixth of the effect.
        if (effect >= 1 && rows >= 64) {
          EXPECT_GE(outcome.verified.high(), layout.layers[0].circuit == 6 ? .7 : .95)
              << layout.name() << " " << effect;
        }
      }
    }
  }
}

struct Losses {
  const char* name;
  Noise noise;
  double least_few;  ///< share that must be covered with 8 and 16 rows
  double least;      ///< and with more
};

class Coverage : public ::testing::TestWithParam<Losses> {};

TEST_P(Coverage, OfTheIntervalOfTheEffect) {
  const Losses losses = GetParam();
  constexpr double kEffect = .1;  // about the smallest of interest: the trial ends after one pass
  for (const int64_t rows : {8, 16, 64, 128}) {
    const VerdictCase of{losses.name, k3Of16, given(kEffect, [](const Heads&) { return 0; }),
                         rows,        .5,     losses.noise};
    Share covered{0, runs_or(testing::run_long_tests() ? 2000 : 150)};
    std::atomic<int64_t> hits = 0;
    each_run(covered.runs, testing::run_long_tests() ? 2 : 1, [&](int64_t run) {
      const AblationReport report = judge_run(of, 90000 + static_cast<uint64_t>(run)).reports[0];
      hits += report.effect_low <= kEffect && kEffect <= report.effect_high ? 1 : 0;
    });
    covered.hits = hits;
    coverage_table().add({losses.name, std::to_string(rows), covered.text()});
    EXPECT_GE(covered.high(), rows <= 16 ? losses.least_few : losses.least)
        << losses.name << ", " << rows << " rows: " << covered.text();
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, Coverage,
                         ::testing::Values(Losses{"normal", Noise::kNormal, .93, .94},
                                           Losses{"skewed (exponential)", Noise::kSkewed, .88, .93},
                                           Losses{"heavy-tailed (Student t3)", Noise::kHeavyTailed,
                                                  .93, .93}));

TEST(HeldOut, RowsGivenTwiceCountOnce) {
  const at::Tensor distinct = random_tokens(16, 32, 100, 1000, 7);
  const ProbeOptions options = resolved(
      {.vocab_size = 1000, .context = 64, .examples = 128, .held_out = distinct.repeat({8, 1})});
  const at::Tensor repeated = behaviour_batch(options, BehaviourMetric::kRepeatedLoss, 0).tokens;
  std::set<std::vector<int64_t>> rows;
  for (int64_t n = 0; n < repeated.size(0); ++n) {
    const int64_t* from = repeated.const_data_ptr<int64_t>() + n * 64;
    rows.insert({from, from + 64});
  }
  EXPECT_EQ(rows.size(), 16u);
  EXPECT_EQ(repeated.size(0), 16);
}

}  // namespace
}  // namespace headscope::simulation
