#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "csrc/exporter/metrics/health_metrics.h"
#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "headscope/built_in_sinks.h"
#include "tests/exporter/metrics/rendered.h"
#include "tests/support/exporter/promtool.h"
#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::exporter {
namespace {

using headscope::testing::sample_snapshot;
using headscope::testing::SampleShape;
using headscope::testing::shared;
using ::testing::HasSubstr;
using ::testing::Not;

std::string line(const std::string& metric, const std::string& value) {
  return "\n" + metric + "{source=\"probe\"} " + value + "\n";
}

/// Four heads of one layer with figures that are exact in binary.
Snapshot four_heads() {
  SampleShape shape;
  shape.layers = 1;
  shape.heads = 4;
  shape.patterns = {"induction", "self"};
  Snapshot snapshot = sample_snapshot(600, Source::kProbe, shape);
  const double ranks[] = {1.0, 8, 1.0625, 4};
  const double entropies[] = {3, 0.5, 2, 1};
  const double logits[] = {7, -2, 120, 9};
  const double sinks[] = {0.25, 0.5, 1, 0.75};
  const double selectivities[] = {2, 64, 1, 3};
  for (size_t i = 0; i < 4; ++i) {
    HeadReading& head = snapshot.heads[i];
    head.participation_ratio = ranks[i];
    head.entropy = entropies[i];
    head.max_logit = logits[i];
    head.sink_mass = sinks[i];
    head.patterns[0].selectivity = selectivities[i];
    head.patterns[0].mass = 0.125 * static_cast<double>(i);
  }
  return snapshot;
}

TEST(Aggregates, AreThoseOfAllHeads) {
  const std::string text = rendered({four_heads()});
  EXPECT_THAT(text, HasSubstr(line("headscope_heads", "4")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_nonfinite", "0")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_collapsed", "2")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_lowest_participation_ratio", "1")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_median_participation_ratio", "1.0625")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_lowest_attention_entropy_nats", "0.5")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_median_attention_entropy_nats", "1")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_highest_max_logit", "120")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_mean_sink_mass_ratio", "0.625")));
  const std::string labels = "{source=\"probe\",pattern=\"induction\"} ";
  EXPECT_THAT(text, HasSubstr("headscope_heads_highest_selectivity_ratio" + labels + "64\n"));
  EXPECT_THAT(text, HasSubstr("headscope_heads_highest_attention_mass_ratio" + labels + "0.375\n"));
}

TEST(Aggregates, TheCapTakesNothingFromThem) {
  const std::string text = rendered({four_heads()}, /*cap=*/1);
  EXPECT_THAT(text, Not(HasSubstr("headscope_head_finite")));
  EXPECT_THAT(text, HasSubstr("\nheadscope_series_cap 1\n"));
  EXPECT_THAT(text, HasSubstr("\nheadscope_heads_left_out 4\n"));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_highest_max_logit", "120")));
}

TEST(Aggregates, HeadsThatAreNotFiniteAreCountedAndEnterNothingElse) {
  Snapshot snapshot = four_heads();
  snapshot.heads[2].finite = false;  // its figures may be numbers or NaN
  snapshot.heads[2].patterns[0].selectivity = 1000;
  snapshot.heads[0].entropy = kNaN;  // not measured
  const std::string text = rendered({snapshot});
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_nonfinite", "1")));
  EXPECT_THAT(text,
              HasSubstr("highest_selectivity_ratio{source=\"probe\",pattern=\"induction\"} 64\n"));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_highest_max_logit", "9")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_collapsed", "1")));
  EXPECT_THAT(text, HasSubstr(line("headscope_heads_median_attention_entropy_nats", "0.5")));
}

TEST(Aggregates, WhatNoHeadHasHasNoSeries) {
  Snapshot snapshot = four_heads();
  for (HeadReading& head : snapshot.heads) {
    head.participation_ratio = head.entropy = head.max_logit = head.sink_mass = kNaN;
    head.patterns.clear();
  }
  const std::string text = rendered({snapshot});
  EXPECT_THAT(text, HasSubstr(line("headscope_heads", "4")));
  for (const char* name : {"collapsed", "lowest", "median", "highest", "mean"}) {
    EXPECT_THAT(text, Not(HasSubstr(std::string("\nheadscope_heads_") + name))) << name;
  }
}

TEST(Aggregates, ARecordedRunAddsUpLikeALiveOne) {
  RunHistory run;
  run.facts = {{"run", "a"}};
  run.snapshots = {shared(sample_snapshot(590, Source::kTrain)), shared(sample_snapshot(600)),
                   shared(sample_snapshot(610))};
  const std::string text = render_metrics(run);
  EXPECT_THAT(text, HasSubstr("headscope_run_info{run=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headscope_heads{source=\"train\"} 16\n"));
  EXPECT_THAT(text, HasSubstr("headscope_step 610\n"));
  EXPECT_THAT(text, HasSubstr("kind=\"formed\",pattern=\"induction\",level=\"circuit\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("headscope_taps_total 1000\n"));
  EXPECT_THAT(render_metrics(RunHistory{}), Not(HasSubstr("headscope_step")));
}

TEST(Deadlines, AreShownFromTheFirstScrapeOn) {
  const HealthMetrics health({}, {}, {{"induction", 2e9}, {"self", kNaN}, {"a\n", 1}});
  const std::string text = serialise(health);
  EXPECT_THAT(text,
              HasSubstr("headscope_circuit_deadline_tokens{pattern=\"induction\"} 2000000000\n"));
  EXPECT_THAT(text, Not(HasSubstr("pattern=\"self\"")));
  HEADSCOPE_NEED_PROMTOOL();
  EXPECT_EQ(headscope::testing::promtool_complaints(text), "");
}

}  // namespace
}  // namespace headscope::exporter
