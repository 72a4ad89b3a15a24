#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "csrc/exporter/metrics/metric_catalogue.h"
#include "headscope/built_in_sinks.h"
#include "tests/exporter/metrics/rendered.h"
#include "tests/support/exporter/promtool.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/text_file.h"

namespace headscope::exporter {
namespace {

using headscope::testing::sample_snapshot;
using headscope::testing::SampleShape;
using ::testing::HasSubstr;
using ::testing::Not;

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

// HEADSCOPE_UPDATE_GOLDEN=1 writes the file instead of comparing it.
TEST(Render, MatchesGoldenFile) {
  const std::string path = HEADSCOPE_SOURCE_DIR "/tests/exporter/metrics/golden/metrics.txt";
  SampleShape shape;
  shape.layers = 2;
  shape.heads = 5;
  shape.patterns = {"induction", "self"};
  const Snapshot snapshot = sample_snapshot(600, Source::kProbe, shape);
  const std::string text = render_metrics(&snapshot, snapshot.health, {{"run_id", "golden"}});
  if (std::getenv("HEADSCOPE_UPDATE_GOLDEN") != nullptr) {
    headscope::testing::write_text(path, text);
  }
  EXPECT_EQ(text, headscope::testing::read_text(path));
}

TEST(Render, PassesPromtoolWithARichSnapshot) {
  HEADSCOPE_NEED_PROMTOOL();
  const Snapshot snapshot = sample_snapshot();
  const std::string text = render_metrics(&snapshot, snapshot.health, {});
  EXPECT_EQ(headscope::testing::promtool_complaints(text), "");
}

TEST(Render, PassesPromtoolBeforeTheFirstSnapshot) {
  HEADSCOPE_NEED_PROMTOOL();
  const std::string text = render_metrics(nullptr, {}, {{"run_id", "a"}});
  EXPECT_EQ(headscope::testing::promtool_complaints(text), "");
}

TEST(Render, BeforeTheFirstSnapshotThereAreHealthAndInfoOnly) {
  const std::string text = render_metrics(nullptr, {}, {{"run_id", "a"}});
  EXPECT_THAT(text, HasSubstr("headscope_run_info{run_id=\"a\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("headscope_taps_total 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("headscope_step")));
}

TEST(Render, KnownErrorKindsStartAtZero) {
  const std::string text = render_metrics(nullptr, {}, {});
  for (const ErrorKind& kind : known_error_kinds()) {
    const std::string label(kind.name);
    EXPECT_THAT(text, HasSubstr("headscope_errors_total{kind=\"" + label + "\"} 0\n"));
  }
}

TEST(Render, UnknownErrorKindsAreShownAndBounded) {
  Health health;
  for (int i = 0; i < 100; ++i) health.errors["surprise" + std::to_string(i)] = 1;
  const std::string text = render_metrics(nullptr, health, {});
  EXPECT_THAT(text, HasSubstr("kind=\"surprise0\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("kind=\"other\"} 68\n"));
  EXPECT_EQ(count(text, "headscope_errors_total{"), known_error_kinds().size() + 32 + 1);
}

TEST(Render, BothSourcesAreShown) {
  const std::string text = rendered({sample_snapshot(590, Source::kTrain), sample_snapshot(600)});
  EXPECT_THAT(text, HasSubstr("headscope_head_participation_ratio{layer=\"1\",head=\"4\","
                              "source=\"train\"} 3.5\n"));
  EXPECT_THAT(text, HasSubstr("headscope_head_participation_ratio{layer=\"1\",head=\"4\","
                              "source=\"probe\"} 3.5\n"));
  EXPECT_THAT(text, HasSubstr("headscope_step 600\n"));
  EXPECT_THAT(text, HasSubstr("headscope_source_step{source=\"train\"} 590\n"));
}

TEST(Render, VanishedHeadsVanish) {
  SampleShape small;
  small.layers = 1;
  const std::string text =
      rendered({sample_snapshot(600), sample_snapshot(610, Source::kProbe, small)});
  EXPECT_THAT(text, Not(HasSubstr("headscope_head_finite{layer=\"1\"")));
}

TEST(Render, WhatWasNotMeasuredHasNoSeries) {
  Snapshot snapshot = sample_snapshot();
  for (HeadReading& head : snapshot.heads) {
    head.null_participation_ratio = kNaN;
    for (PatternReading& pattern : head.patterns) pattern.margin = kNaN;
  }
  snapshot.circuits[0].critical_margin_z = kNaN;
  const std::string text = rendered({snapshot});
  EXPECT_THAT(text, Not(HasSubstr("headscope_head_null_participation_ratio")));
  EXPECT_THAT(text, Not(HasSubstr("headscope_head_match_margin_nats")));
  EXPECT_THAT(text, Not(HasSubstr("headscope_circuit_critical_margin_z")));
}

TEST(Render, AHeadThatIsNotFiniteShowsNaN) {
  Snapshot snapshot = sample_snapshot();
  snapshot.heads[3].finite = false;
  snapshot.heads[3].participation_ratio = kNaN;
  snapshot.heads[3].patterns[0].selectivity = kNaN;
  const std::string text = rendered({snapshot});
  const std::string labels = "{layer=\"0\",head=\"3\",source=\"probe\"";
  EXPECT_THAT(text, HasSubstr("headscope_head_finite" + labels + "} 0\n"));
  EXPECT_THAT(text, HasSubstr("headscope_head_participation_ratio" + labels + "} Nan\n"));
  EXPECT_THAT(text, HasSubstr("headscope_head_selectivity_ratio" + labels +
                              ",pattern=\"induction\"} Nan\n"));
}

TEST(Render, ALossThatWasNeverToldHasNoSeries) {
  Snapshot snapshot = sample_snapshot();
  snapshot.loss = kNaN;
  EXPECT_THAT(rendered({snapshot}), Not(HasSubstr("headscope_loss")));
}

TEST(Render, ALossThatBecameNaNIsShown) {
  Snapshot lost = sample_snapshot(610, Source::kTrain);
  lost.loss = kNaN;
  EXPECT_THAT(rendered({sample_snapshot(600, Source::kTrain), lost}),
              HasSubstr("headscope_loss Nan\n"));
}

TEST(Render, AProbeWithoutLossKeepsTheTrainingLoss) {
  Snapshot probe = sample_snapshot(610);
  probe.loss = kNaN;
  EXPECT_THAT(rendered({sample_snapshot(600, Source::kTrain), probe}),
              HasSubstr("headscope_loss 3.25\n"));
}

TEST(Render, OneStateOfACircuitIsOne) {
  const std::string text = rendered({sample_snapshot()});
  const std::string series = "headscope_circuit_state{pattern=\"induction\",state=";
  EXPECT_THAT(text, HasSubstr(series + "\"formed\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(series + "\"dormant\"} 0\n"));
  EXPECT_EQ(count(text, series), static_cast<size_t>(kCircuitStates));
}

TEST(Render, StepsThatWereNeverReachedHaveNoSeries) {
  const std::string text = rendered({sample_snapshot()});
  EXPECT_THAT(text, HasSubstr("headscope_circuit_formed_step{pattern=\"induction\"} 600\n"));
  EXPECT_THAT(text, Not(HasSubstr("headscope_circuit_verified_step")));
}

TEST(Render, CircuitsStayWhileTrainingStepsPass) {
  const std::string text = rendered({sample_snapshot(600), sample_snapshot(610, Source::kTrain)});
  EXPECT_THAT(text, HasSubstr("headscope_circuit_heads{pattern=\"induction\"} 2\n"));
}

TEST(Render, EventsAddUp) {
  const std::string text = rendered({sample_snapshot(600), sample_snapshot(610)});
  const std::string tail = "pattern=\"induction\",level=\"circuit\"} ";
  EXPECT_THAT(text, HasSubstr("headscope_events_total{kind=\"formed\"," + tail + "2\n"));
  EXPECT_THAT(text, HasSubstr("headscope_events_total{kind=\"lost\"," + tail + "0\n"));
}

TEST(Render, TheLatestAblationIsShown) {
  Snapshot later = sample_snapshot(620);
  later.ablations[0].verdict = CircuitState::kNotCausal;
  const std::string text =
      rendered({sample_snapshot(600), later, sample_snapshot(630, Source::kTrain)});
  const std::string labels = "{pattern=\"induction\",metric=\"planted_loss\"";
  EXPECT_THAT(text, HasSubstr("headscope_ablation_step" + labels + "} 620\n"));
  EXPECT_THAT(text,
              HasSubstr("headscope_ablation_verdict" + labels + ",verdict=\"not_causal\"} 1\n"));
  EXPECT_THAT(text,
              HasSubstr("headscope_ablation_verdict" + labels + ",verdict=\"verified\"} 0\n"));
}

template <typename Record, size_t n>
constexpr size_t exported(const Figure<Record> (&figures)[n]) {
  size_t count = 0;
  for (const auto& figure : figures) count += !figure.metric.name.empty();
  return count;
}
// The figures of a head, whether it is finite and specialising, and those of each of 6 patterns.
constexpr size_t kSeriesOfAHead = exported(kHeadFigures) + 2 + exported(kPatternFigures) * 6;

TEST(Render, TheCapKeepsTheMostSelectiveHeads) {
  const std::string text = rendered({sample_snapshot()}, 2 * kSeriesOfAHead + 1);
  EXPECT_EQ(count(text, "headscope_head_finite{"), 2u);
  EXPECT_THAT(text, HasSubstr("headscope_head_finite{layer=\"1\",head=\"7\""));
  EXPECT_THAT(text, HasSubstr("headscope_head_finite{layer=\"1\",head=\"6\""));
  EXPECT_THAT(text, HasSubstr("headscope_series_left_out " + std::to_string(14 * kSeriesOfAHead)));
}

TEST(Render, TheCapBreaksTiesByPlace) {
  Snapshot snapshot = sample_snapshot();
  for (HeadReading& head : snapshot.heads) head.patterns = snapshot.heads[0].patterns;
  const std::string text = rendered({snapshot}, kSeriesOfAHead);
  EXPECT_EQ(count(text, "headscope_head_finite{"), 1u);
  EXPECT_THAT(text, HasSubstr("headscope_head_finite{layer=\"0\",head=\"0\""));
}

TEST(Render, BelowTheCapNothingIsLeftOut) {
  EXPECT_THAT(rendered({sample_snapshot()}, 16 * kSeriesOfAHead),
              HasSubstr("headscope_series_left_out 0\n"));
}

}  // namespace
}  // namespace headscope::exporter
