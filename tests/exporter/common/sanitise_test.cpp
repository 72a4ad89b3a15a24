#include "csrc/exporter/common/sanitise.h"

#include <gtest/gtest.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <sstream>
#include <string>

#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/promtool.h"
#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::exporter {
namespace {

using headscope::testing::promtool_complaints;
using headscope::testing::sample_snapshot;

TEST(SanitiseLabel, KeepsPrintableUtf8) {
  EXPECT_EQ(sanitise_label("previous-token \"x\" \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            "previous-token \"x\" \xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80");
}

TEST(SanitiseLabel, ReplacesControlCharacters) {
  EXPECT_EQ(sanitise_label(std::string_view("a\0b\rc\nd\x7F"
                                            "e\xC2\x85",
                                            10)),
            "a\uFFFDb\uFFFDc\uFFFDd\uFFFDe\uFFFD");
}

TEST(SanitiseLabel, ReplacesEveryByteThatIsNotUtf8) {
  EXPECT_EQ(sanitise_label("\xFF"), "\uFFFD");                                // never occurs
  EXPECT_EQ(sanitise_label("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(sanitise_label("\xE0\x80\xAF"), "\uFFFD\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(sanitise_label("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // surrogate
  EXPECT_EQ(sanitise_label("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
  EXPECT_EQ(sanitise_label("\xE2\x82"), "\uFFFD\uFFFD");                      // truncated
  EXPECT_EQ(sanitise_label("\xC3x"), "\uFFFDx");                              // no continuation
}

TEST(SanitiseLabel, CutsBetweenCharacters) {
  EXPECT_EQ(sanitise_label(std::string(300, 'x')), std::string(253, 'x') + "...");
  EXPECT_EQ(sanitise_label("aaaa\xE2\x82\xAC\xE2\x82\xAC", 9), "aaaa...");
  EXPECT_EQ(sanitise_label(std::string(256, 'x')), std::string(256, 'x'));
}

TEST(SanitiseLabels, KeepsThemApart) {
  const std::vector<std::string> expected = {"a\uFFFD", "a\uFFFD_2", "b", "a\uFFFD_3"};
  EXPECT_EQ(sanitise_labels({"a\x01", "a\x02", "b", "a\xFF"}), expected);
}

// A series is cleaned once more when it is added.
TEST(SanitiseLabels, KeepsLongOnesApartWithinTheLimit) {
  std::vector<std::string> names(12, std::string(1000, 'x'));
  names.push_back(std::string(kMaxLabelBytes - 1, 'y'));
  names.push_back(names.back());
  const std::vector<std::string> labels = sanitise_labels(names);
  EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), names.size());
  for (const std::string& label : labels) {
    EXPECT_LE(label.size(), kMaxLabelBytes);
    EXPECT_EQ(sanitise_label(label), label);
  }
}

TEST(SanitiseLabelName, GivesNamesThatPrometheusTakes) {
  EXPECT_EQ(sanitise_label_name("run_id"), "run_id");
  EXPECT_EQ(sanitise_label_name("Torch version"), "torch_version");
  EXPECT_EQ(sanitise_label_name("9lives"), "fact_9lives");
  EXPECT_EQ(sanitise_label_name("__name__"), "fact___name__");
  EXPECT_EQ(sanitise_label_name("le"), "fact_le");
  EXPECT_EQ(sanitise_label_name(""), "fact_");
  const std::vector<std::string> equal(2, sanitise_label_name(std::string(1000, '9')));
  EXPECT_EQ(sanitise_labels(equal).back(), equal.front() + "_2");
}

TEST(Exposable, LeavesOrdinaryValuesAlone) {
  for (const double value : {0.0, 1.5, -1e300, 5e-324, HUGE_VAL, -HUGE_VAL}) {
    EXPECT_EQ(exposable(value), value);
  }
  EXPECT_TRUE(std::signbit(exposable(-0.0)));
  EXPECT_TRUE(std::isnan(exposable(kNaN)));
}

TEST(Exposable, StaysFiniteWhenRoundedTo16Digits) {
  for (const double value : {DBL_MAX, std::nextafter(DBL_MAX, 0.0), 1.797693134862315e308}) {
    for (const double sign : {1.0, -1.0}) {
      char text[40];
      std::snprintf(text, sizeof text, "%.16g", exposable(sign * value));
      EXPECT_TRUE(std::isfinite(std::strtod(text, nullptr))) << text;
    }
  }
}

TEST(SanitiseTerminal, LeavesNoCommands) {
  EXPECT_EQ(sanitise_terminal("a\x1b[2Jb\xC3\xA9\n~"), "a?[2Jb???~");
}

std::string random_bytes(std::mt19937& random) {
  std::string bytes(random() % 40, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

double random_double(std::mt19937& random) {
  const uint64_t bits = (static_cast<uint64_t>(random()) << 32) | random();
  return std::bit_cast<double>(bits);
}

// Every string and every double of a snapshot comes from users and models.
TEST(Hostile, TheTextIsThatOfPrometheusCpp) {
  std::mt19937_64 random(11);
  for (int i = 0; i < 20; ++i) {
    headscope::testing::SampleShape shape;
    for (std::string& pattern : shape.patterns) pattern += "\"\\\n\u00e9";
    Snapshot snapshot = sample_snapshot(600, Source::kProbe, shape);
    snapshot.loss = -HUGE_VAL;
    for (HeadReading& head : snapshot.heads) {
      head.entropy = std::bit_cast<double>(random());
      head.max_logit = static_cast<double>(random() >> 11) * std::exp2(-30 - i);
      head.output_norm = i == 0 ? HUGE_VAL : std::round(head.max_logit);
    }
    const RunMetrics metrics(state_after({}, headscope::testing::shared(snapshot)));
    std::ostringstream reference;
    prometheus::TextSerializer().Serialize(reference, metrics.Collect());
    EXPECT_EQ(serialise(metrics), reference.str());
  }
}

TEST(Hostile, ThousandRandomLabelsAndValuesStillParse) {
  HEADSCOPE_NEED_PROMTOOL();
  std::mt19937 random(7);
  RunFacts facts;
  for (int i = 0; i < 50; ++i) facts[random_bytes(random)] = random_bytes(random);
  headscope::testing::SampleShape shape;
  for (std::string& pattern : shape.patterns) pattern = random_bytes(random);
  for (int i = 0; i < 200; ++i) shape.patterns.push_back(random_bytes(random));
  Snapshot snapshot = sample_snapshot(600, Source::kProbe, shape);
  snapshot.dtype = random_bytes(random);
  snapshot.integral_axis = random_bytes(random);
  snapshot.controls = random_bytes(random);
  for (HeadReading& head : snapshot.heads) {
    head.participation_ratio = random_double(random);
    for (PatternReading& pattern : head.patterns) {
      pattern = {random_double(random), random_double(random), random_double(random), 0, 0, 0};
    }
  }
  for (int i = 0; i < 400; ++i) {
    snapshot.health.errors[random_bytes(random)] = random();
    snapshot.events.push_back(snapshot.events.front());
    snapshot.events.back().kind = random_bytes(random);
    snapshot.ablations.push_back(snapshot.ablations.front());
    snapshot.ablations.back().metric = random_bytes(random);
    snapshot.ablations.back().effect = random_double(random);
  }
  EXPECT_EQ(promtool_complaints(render_metrics(&snapshot, snapshot.health, facts)), "");
}

TEST(Hostile, TheLargestDoubleStillParses) {
  HEADSCOPE_NEED_PROMTOOL();
  Snapshot snapshot = sample_snapshot();
  snapshot.loss = DBL_MAX;
  snapshot.heads[0].output_norm = -DBL_MAX;
  snapshot.heads[0].max_logit = HUGE_VAL;
  EXPECT_EQ(promtool_complaints(render_metrics(&snapshot, {}, {})), "");
}

TEST(Hostile, OneBadValueOrNameNeverSpoilsTheScrape) {
  HEADSCOPE_NEED_PROMTOOL();
  for (const double value : {DBL_MAX, -DBL_MAX, 1e308, -0.0, 5e-324, kNaN, -kNaN, HUGE_VAL}) {
    Snapshot snapshot = sample_snapshot();
    snapshot.loss = snapshot.tokens = snapshot.wall_time = value;
    snapshot.heads[0].output_norm = snapshot.circuits[0].formed_threshold = value;
    snapshot.ablations[0].effect = value;
    snapshot.health.tap_seconds = value;
    EXPECT_EQ(promtool_complaints(render_metrics(&snapshot, snapshot.health, {})), "") << value;
  }
  for (const std::string& name :
       {std::string("\xFF"), std::string("a\n# HELP x y\nx 1\n"), std::string("\"} 1\n"),
        std::string(8 << 20, 'x'), std::string(8 << 20, '\xFF')}) {
    headscope::testing::SampleShape shape;
    shape.patterns[2] = name;
    Snapshot snapshot = sample_snapshot(600, Source::kProbe, shape);
    snapshot.events[0].pattern = snapshot.ablations[0].pattern = name;
    const std::string text = render_metrics(&snapshot, {}, {{"run_name", name}, {name, "x"}});
    EXPECT_EQ(promtool_complaints(text), "") << name.substr(0, 20);
    EXPECT_LT(text.size(), 1u << 20) << name.substr(0, 20);
  }
}

TEST(Hostile, AHundredThousandNamesAreBounded) {
  constexpr int kNames = 100000;
  Snapshot snapshot = sample_snapshot();
  RunFacts facts;
  for (int i = 0; i < kNames; ++i) {
    const std::string name = "name" + std::to_string(i);
    facts[name] = name;
    snapshot.health.errors[name] = 1;
    snapshot.patterns.push_back(i % 2 == 0 ? name : "the same");
    snapshot.heads[0].patterns.push_back({1, 1, 1, 1, 1, 1});
    snapshot.circuits.push_back({});
    snapshot.circuits.back().pattern = snapshot.patterns.back();
    snapshot.events.push_back(snapshot.events.front());
    snapshot.events.back().kind = name;
    snapshot.ablations.push_back(snapshot.ablations.front());
    snapshot.ablations.back().metric = name;
  }
  const std::string text = render_metrics(&snapshot, snapshot.health, facts);
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 20000);
}

TEST(Hostile, CountersAreExact) {
  for (const int64_t count : {(int64_t{1} << 31) - 1, int64_t{1} << 31, (int64_t{1} << 32) - 1,
                              int64_t{1} << 32, (int64_t{1} << 53) - 1}) {
    Snapshot snapshot = sample_snapshot(count);
    snapshot.tokens = static_cast<double>(count);
    Health health;
    health.taps = static_cast<uint64_t>(count);
    const std::string text = render_metrics(&snapshot, health, {});
    for (const char* metric : {"headscope_step ", "headscope_tokens ", "headscope_taps_total "}) {
      EXPECT_NE(text.find("\n" + (metric + std::to_string(count)) + "\n"), std::string::npos)
          << metric << count;
    }
  }
}

// promtool does not look for series that occur twice; Prometheus drops them.
TEST(Hostile, NoSeriesOccursTwice) {
  headscope::testing::SampleShape shape;
  shape.patterns = {"a\x01", "a\x02", "a\xFF"};
  Snapshot snapshot = sample_snapshot(600, Source::kProbe, shape);
  snapshot.heads.push_back(snapshot.heads.front());
  snapshot.health.errors = {{"k\x01", 1}, {"k\x02", 2}};
  for (const char* kind : {"e\x01", "e\x02"}) {
    snapshot.events.push_back(snapshot.events.front());
    snapshot.events.back().kind = kind;
    snapshot.ablations.push_back(snapshot.ablations.front());
    snapshot.ablations.back().metric = kind;
  }
  std::istringstream lines(
      render_metrics(&snapshot, snapshot.health, {{"x y", "1"}, {"x_y", "2"}}));
  std::set<std::string> seen;
  for (std::string line; std::getline(lines, line);) {
    if (line[0] == '#') continue;
    EXPECT_TRUE(seen.insert(line.substr(0, line.rfind(' '))).second) << line;
  }
  EXPECT_GT(seen.size(), 100u);
}

}  // namespace
}  // namespace headscope::exporter
