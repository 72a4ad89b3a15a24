#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <set>

#include "tests/simulation/runs.h"
#include "tests/simulation/simulated_heads.h"
#include "tests/support/long_tests.h"

// docs/validation.md, Simulated heads: the table is this program's output.
namespace headscope::simulation {
namespace {

constexpr double kLevel = .05;  // CircuitRules::alpha

Table& null_table() {
  static auto* table = static_cast<Table*>(::testing::AddGlobalTestEnvironment(
      new Table({"kind of head", "heads", "rows", "probes", "runs with a false `emerging`",
                 "patterns of these", "the effect itself", "`formed`"})));
  return *table;
}

Table& power_table() {
  static auto* table = static_cast<Table*>(::testing::AddGlobalTestEnvironment(
      new Table({"true preference", "heads", "rows", "probes", "runs that call it",
                 "median probe of the call", "other calls"})));
  return *table;
}

const Table* const kTables[] = {&null_table(), &power_table()};

struct Cell {
  Recipe recipe;
  std::set<std::string> itself = {};  ///< patterns that are the effect itself
};

std::vector<Cell> null_cells() {
  return {
      {{.name = "i.i.d., sd .5", .content = .5}},
      {{.name = "i.i.d., sd 1"}},
      {{.name = "i.i.d., sd 2", .content = 2}},
      {{.name = "i.i.d., sd 3", .content = 3}},
      {{.name = "i.i.d., Student t3", .heavy_tails = true}},
      {{.name = "position effects, sd .5", .position_effects = .5}, {"first-token"}},
      {{.name = "position effects, sd 1", .position_effects = 1}, {"first-token"}},
      {{.name = "recency, .05 a token", .recency = .05}},
      {{.name = "recency, .2 a token", .recency = .2}},
      {{.name = "sink of 3 nats on key 0", .sink = 3}, {"first-token"}},
      {{.name = "token preference, sd 1", .token_effects = 1}},
      {{.name = "3 nats on key T - 2", .fixed_position = 3, .fixed_at = 1}},
      {{.name = "3 nats on key T / 2 - 1", .fixed_position = 3, .fixed_at = .5}},
  };
}

/// Extents of a cell and how many runs of each.
struct Size {
  Extent extent;
  int64_t runs;
};

std::string joined(const std::map<std::string, int64_t>& counts) {
  std::string text;
  for (const auto& [name, count] : counts)
    text += (text.empty() ? "" : ", ") + name + " " + std::to_string(count);
  return text.empty() ? "none" : text;
}

std::vector<Calls> all_runs(const Recipe& recipe, const Size& size) {
  std::vector<Calls> runs(static_cast<size_t>(size.runs));
  at::set_num_threads(1);
  each_run(size.runs, testing::run_long_tests() ? 2 : 1, [&](int64_t run) {
    runs[static_cast<size_t>(run)] =
        simulate(recipe, size.extent, 1000 + static_cast<uint64_t>(run));
  });
  return runs;
}

std::vector<std::string> row_of(const std::string& name, const Size& size) {
  return {name, std::to_string(size.extent.heads), std::to_string(size.extent.rows),
          std::to_string(size.extent.probes)};
}

/// A size of the null table's, and the cell.
using Null = std::tuple<size_t, size_t>;

std::vector<Size> null_sizes() {
  if (!testing::run_long_tests()) return {{{.probes = 4}, 10}};
  return {{{.heads = 16, .rows = 128, .probes = 77}, 200},
          {{.heads = 384, .rows = 128, .probes = 77}, 10},
          {{.heads = 16, .rows = 128, .probes = 1000}, 10}};
}

class NullHeads : public ::testing::TestWithParam<Null> {};

TEST_P(NullHeads, AreCalledInAtMostOneRunOfTwenty) {
  const Cell cell = null_cells()[std::get<0>(GetParam())];
  Size size = null_sizes()[std::get<1>(GetParam())];
  size.runs = runs_or(size.runs);
  Share share{0, size.runs};
  std::map<std::string, int64_t> called, itself, formed;
  for (const Calls& calls : all_runs(cell.recipe, size)) {
    bool any = false;
    for (const auto& [pattern, probe] : calls.emerging) {
      const bool own = cell.itself.contains(pattern);
      ++(own ? itself : called)[pattern];
      any = any || !own;
    }
    for (const auto& [pattern, probe] : calls.formed) {
      ++formed[pattern];
      EXPECT_TRUE(cell.itself.contains(pattern)) << pattern;
    }
    share.hits += any ? 1 : 0;
  }
  std::vector<std::string> row = row_of(cell.recipe.name, size);
  row.insert(row.end(), {share.text(), joined(called), joined(itself), joined(formed)});
  null_table().add(row);
  EXPECT_LE(share.low(), kLevel) << cell.recipe.name << ": " << share.text() << ", "
                                 << joined(called);
}

std::string null_name(const ::testing::TestParamInfo<Null>& info) {
  const Size size = null_sizes()[std::get<1>(info.param)];
  return std::to_string(std::get<0>(info.param)) + "_" + std::to_string(size.extent.heads) + "_" +
         std::to_string(size.extent.probes);
}

INSTANTIATE_TEST_SUITE_P(Kinds, NullHeads,
                         ::testing::Combine(::testing::Range<size_t>(0, null_cells().size()),
                                            ::testing::Range<size_t>(0, null_sizes().size())),
                         null_name);

struct Preference {
  const char* pattern;
  double content, ratio;
  bool must;  ///< be called in every run
};

class PreferringHeads : public ::testing::TestWithParam<Preference> {};

TEST_P(PreferringHeads, AreCalled) {
  const Preference preference = GetParam();
  std::ostringstream name;
  name << preference.pattern << ", " << preference.ratio << "x, content sd " << preference.content;
  const Recipe recipe{.name = name.str(),
                      .content = preference.content,
                      .preferred = preference.pattern,
                      .preference = preference.ratio};
  Size size = testing::run_long_tests()
                  ? Size{{.rows = 128, .probes = 77, .probes_in_a_row = 2}, 40}
                  : Size{{.probes = 6, .probes_in_a_row = 2}, 3};
  size.runs = runs_or(size.runs);
  Share share{0, size.runs};
  std::map<std::string, int64_t> others;
  std::vector<int64_t> probes;
  for (const Calls& calls : all_runs(recipe, size)) {
    for (const auto& [pattern, probe] : calls.emerging) {
      if (pattern == preference.pattern)
        probes.push_back(probe);
      else
        ++others[pattern];
    }
  }
  share.hits = std::ssize(probes);
  std::sort(probes.begin(), probes.end());
  std::vector<std::string> row = row_of(recipe.name, size);
  row.insert(row.end(),
             {share.text(), probes.empty() ? "never" : std::to_string(probes[probes.size() / 2]),
              joined(others)});
  power_table().add(row);
  if (preference.must) {
    EXPECT_EQ(share.hits, share.runs) << recipe.name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ratios, PreferringHeads,
    ::testing::Values(
        Preference{"induction", .5, 2, false}, Preference{"induction", .5, 3, true},
        Preference{"induction", .5, 10, true}, Preference{"induction", 1, 2, false},
        Preference{"induction", 1, 3, true}, Preference{"induction", 1, 10, true},
        Preference{"previous-token", .5, 2, false}, Preference{"previous-token", .5, 3, true},
        Preference{"previous-token", .5, 10, true}, Preference{"previous-token", 1, 2, false},
        Preference{"previous-token", 1, 3, false}, Preference{"previous-token", 1, 10, true}));

}  // namespace
}  // namespace headscope::simulation
