#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::RecordingSink;

constexpr int64_t kVocab = 512, kContext = 64, kExamples = 64, kHeads = 4, kWidth = 16;
constexpr int64_t kQuarter = 16, kWhole = 2 * kExamples + 16;  // planted, random, repeated rows

/// One layer whose keys and queries are the tokens' own vectors: the larger `match`, the more a
/// token attends to its like. At 0 attention is uniform.
struct Watched {
  double match = 0;
  int64_t with_logits = 0, without = 0;  // rows that ran
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::unique_ptr<Monitor> monitor;

  explicit Watched(ProbeOptions probe = {}, CircuitRules rules = {}, double formed_at_256 = 2000,
                   std::vector<Pattern> patterns = testing::pinned_patterns()) {
    Options options;
    options.schedule = {.train_every = 0, .longest_probe_gap = 1, .budget = 0};
    options.rules = std::move(rules);
    options.log = [](LogLevel, const std::string&) {};
    monitor =
        std::make_unique<Monitor>(std::move(options), std::vector<std::shared_ptr<Sink>>{sink});
    probe.vocab_size = kVocab;
    probe.context = kContext;
    probe.examples = kExamples;
    probe.verify = false;
    probe.patterns = std::move(patterns);
    // 2000: far from what uniform attention gives.
    for (Pattern& pattern : probe.patterns) pattern.formed_at_256 = formed_at_256;
    monitor->set_probe(ProbeHost{[this](const at::Tensor& tokens) {
                                   with_logits += tokens.size(0);
                                   attend(tokens);
                                   return at::zeros({tokens.size(0), tokens.size(1), kVocab});
                                 },
                                 {},
                                 [this](const at::Tensor& tokens) {
                                   without += tokens.size(0);
                                   attend(tokens);
                                   return at::Tensor();
                                 }},
                       probe);
  }
  void attend(const at::Tensor& tokens) {
    const at::Tensor vectors =
        at::randn({kVocab, kHeads * kWidth}, at::detail::createCPUGenerator(3), at::kFloat);
    const at::Tensor own = at::embedding(vectors, tokens)
                               .view({tokens.size(0), tokens.size(1), kHeads, kWidth})
                               .transpose(1, 2);
    const at::Tensor q = own * match;
    const at::Tensor z = at::scaled_dot_product_attention(q, own, own, {}, 0.0, true);
    ASSERT_TRUE(monitor->observe(0, q, own, own, z).is_same(z));
  }
  /// Runs the probe of a step; returns the rows that it ran.
  int64_t probe(int64_t step) {
    with_logits = without = 0;
    { auto scope = monitor->begin_step({.step = step, .tokens_seen = 1.0 + step}); }
    monitor->report();
    return with_logits + without;
  }
  std::vector<int64_t> probes(int64_t first, int64_t last) {
    std::vector<int64_t> rows;
    for (int64_t step = first; step < last; ++step) rows.push_back(probe(step));
    return rows;
  }
};

TEST(EarlyProbe, AQuarterDecidesWhereNothingIsNear) {
  Watched watched;
  EXPECT_EQ(watched.probes(0, 9),
            std::vector<int64_t>({kWhole, kQuarter, kQuarter, kQuarter, kWhole, kQuarter, kQuarter,
                                  kQuarter, kWhole}));
  watched.monitor->close();
  ASSERT_EQ(watched.sink->snapshots.size(), 9u);
  for (size_t i = 0; i < 9; ++i) {
    const Snapshot& snapshot = *watched.sink->snapshots[i];
    const bool whole = i % 4 == 0;
    EXPECT_EQ(std::isfinite(snapshot.repeat_gap), whole) << i;
    for (const HeadReading& head : snapshot.heads) {
      EXPECT_EQ(std::isfinite(head.participation_ratio), whole) << i;
      EXPECT_EQ(head.samples, whole ? kExamples : 0) << i;
      EXPECT_EQ(head.eigenvalues.empty(), !whole) << i;
      // Uniform attention is uniform on any rows, and the last random tokens' PR stands.
      EXPECT_NEAR(head.patterns[0].selectivity, 1, 1e-4) << i;
      EXPECT_TRUE(std::isfinite(head.null_participation_ratio)) << i;
    }
    EXPECT_TRUE(snapshot.events.empty()) << i;
  }
}

TEST(EarlyProbe, LogitsAreAskedForWhereSomebodyReadsThem) {
  Watched watched;
  watched.probe(0);
  EXPECT_EQ(watched.with_logits, 16);
  EXPECT_EQ(watched.without, 2 * kExamples);
}

TEST(EarlyProbe, TheCriticalValueOfTheLastTestStands) {
  Watched watched;
  watched.probe(0);
  const double critical = watched.monitor->report().circuits[0].critical_margin_z;
  // All heads are constant under uniform attention; give them something to draw from.
  EXPECT_FALSE(critical > 0);
  Watched noisy;
  noisy.match = 0.02;
  noisy.probe(0);
  const double resolved = noisy.monitor->report().circuits[0].critical_margin_z;
  EXPECT_GT(resolved, 2);
  for (int64_t step = 1; step < 4; ++step) {
    noisy.probe(step);
    EXPECT_EQ(noisy.monitor->report().circuits[0].critical_margin_z, resolved) << step;
  }
}

// What comes near is looked at with all rows at once, and is called as early as without quarters.
TEST(EarlyProbe, DelaysNoCall) {
  std::vector<int64_t> called;
  for (const int64_t every : {1, 4}) {
    Watched watched({.whole_every = every});
    watched.probes(0, 6);
    watched.match = 0.5;
    const auto rows = watched.probes(6, 8);
    EXPECT_GE(rows.front(), kExamples) << every;
    called.push_back(watched.monitor->report().circuits[2].emerging_step);
    EXPECT_EQ(watched.monitor->report().circuits[2].state, CircuitState::kEmerging) << every;
  }
  EXPECT_EQ(called, std::vector<int64_t>({6, 6}));
}

TEST(EarlyProbe, HoldsWhatIsEmerging) {
  Watched watched;
  watched.match = 0.5;
  watched.probes(0, 2);
  ASSERT_EQ(watched.monitor->report().circuits[2].state, CircuitState::kEmerging);
  watched.match = 0;  // two probes with a test end it, early ones do not
  EXPECT_EQ(watched.probes(2, 4), std::vector<int64_t>({kQuarter, kQuarter}));
  EXPECT_EQ(watched.monitor->report().circuits[2].state, CircuitState::kEmerging);
  watched.probes(4, 9);
  EXPECT_EQ(watched.monitor->report().circuits[2].state, CircuitState::kDormant);
}

TEST(EarlyProbe, NearAThresholdAllRowsRun) {
  // Uniform attention has selectivity 1 everywhere, and induction's threshold is formed_at_256 *
  // 63 / 255: what formed needs is far above it, and a fifth above it.
  const std::vector<Pattern> induction = {testing::pinned_patterns()[0]};
  Watched far({}, {.mass_floor = 0}, 40, induction), near({}, {.mass_floor = 0}, 5, induction);
  EXPECT_EQ(far.probes(0, 2).back(), kQuarter);
  EXPECT_EQ(near.probes(0, 2).back(), kExamples);
}

TEST(EarlyProbe, WhatHasFormedIsTestedOnWholeProbes) {
  Watched watched({}, {}, 8);
  watched.match = 0.7;
  watched.probes(0, 4);
  const auto tested = [&] {
    return std::isfinite(watched.monitor->report().last_probe->heads[0].patterns[2].margin_z);
  };
  ASSERT_EQ(watched.monitor->report().circuits[2].state, CircuitState::kFormed);
  for (int64_t step = 4; step < 12; ++step) {
    const bool whole = watched.probe(step) == kWhole;
    EXPECT_EQ(whole, step % 4 == 0);
    EXPECT_EQ(tested(), whole) << step;
  }
}

TEST(EarlyProbe, OnlyTheMarginsPrecursorEndsOne) {
  for (const auto precursor : {Precursor::kMass, Precursor::kEither, Precursor::kSelectivity}) {
    Watched watched({}, {.precursor = precursor});
    EXPECT_EQ(watched.probes(0, 2).back(), kExamples) << to_string(precursor);
  }
}

TEST(EarlyProbe, AResumedRunAsksTheSame) {
  Watched unbroken, first, second;
  const auto all = unbroken.probes(0, 12);
  auto rows = first.probes(0, 6);
  second.monitor->load_state_dict(first.monitor->state_dict());
  const auto rest = second.probes(6, 12);
  rows.insert(rows.end(), rest.begin(), rest.end());
  EXPECT_EQ(rows, all);
}

}  // namespace
}  // namespace headscope
