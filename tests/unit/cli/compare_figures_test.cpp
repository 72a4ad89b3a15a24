// `headscope compare`: which runs it compares, and its figures against ones counted by hand.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/cli/recorded_course.h"

namespace headscope {
namespace {

using test::Course;
using test::forms_at;
using test::Json;
using test::kOneOfThem;
using test::RecordedCourse;
using ::testing::AllOf;
using ::testing::HasSubstr;

class CompareFigures : public test::ComparedRuns {};

TEST_F(CompareFigures, ReadsTheVerdictThatCameAfterTheLastProbe) {
  const auto run_dir = folder_.file("a");
  {
    RecordedCourse recorded(run_dir);
    recorded.take(kOneOfThem);
    recorded.verify({{1, 0}});
  }
  const auto found = answer({.runs = {run_dir}});
  const auto& circuit = found["patterns"][0]["circuits"][0];
  EXPECT_EQ(circuit["state"], "verified");
  EXPECT_EQ(circuit["verified"]["step"], 50);
  EXPECT_EQ(found["runs"][0]["probes"], 5);
}

TEST_F(CompareFigures, ComparesAllPairsAndGoesOnWhenForced) {
  const auto rules = [](const std::string& from, const std::string& to) {
    return [from, to](Snapshot& snapshot) {
      for (auto& event : snapshot.events) {
        const auto at = event.rule.find(from);
        if (at != std::string::npos) event.rule.replace(at, from.size(), to);
      }
    };
  };
  const auto a = record("a", forms_at(0, 5));  // nothing happened in it
  const auto b = record("b", kOneOfThem), c = record("c", kOneOfThem, rules(">= 0.1", ">= 0.2"));
  EXPECT_EQ(refusal({.runs = {a, c}}), "");
  const auto refused = refusal({.runs = {a, b, c}});
  EXPECT_THAT(refused, AllOf(HasSubstr(c + " is of another definition than " + b),
                             HasSubstr("induction is formed by"), HasSubstr(">= 0.2, 2 probes"),
                             HasSubstr("CircuitRules"), HasSubstr("--force")));
  EXPECT_THAT(refusal({.runs = {a}, .references = {b, c}}), HasSubstr("induction is formed by"));
  const auto forced = answer({.runs = {a, b, c}, .force = true});
  ASSERT_EQ(forced["differences"].size(), 1u);
  EXPECT_EQ(forced["patterns"][0]["overlap"][2]["jaccard"], 1);
  EXPECT_THAT(cli::compare({.runs = {a, b, c}, .force = true}), HasSubstr("Not the same: " + c));
  // Events of one run name other figures of their null tests; these are no rules.
  const auto tested = [&](double z) {
    return rules(" (no null", ": margin z >= critical z " + std::to_string(z) + " (p 1) (no null");
  };
  EXPECT_EQ(
      refusal({.runs = {record("d", kOneOfThem, tested(1)), record("e", kOneOfThem, tested(2))}}),
      "");
  // Other patterns and shapes, forced: what both have, by name.
  const auto other = record("f", kOneOfThem, [](Snapshot& s) {
    std::swap(s.circuits[0], s.circuits[1]);
    s.circuits[0].pattern = s.patterns[0] = "mine";
    s.patterns[1] = "induction";
    s.heads.pop_back();
  });
  const auto found = answer({.runs = {b, other}, .force = true});
  ASSERT_EQ(found["patterns"].size(), 1u);
  EXPECT_EQ(found["patterns"][0]["pattern"], "induction");
  EXPECT_EQ(found["patterns"][0]["circuits"][1]["heads"], Json::parse("[[1, 0]]"));
  EXPECT_TRUE(found["patterns"][0]["overlap"][0]["by_chance"].is_null());
  EXPECT_EQ(found["integrals"][0]["heads"], 5);
}

/// Rank of each value, equal ones sharing the mean of theirs, by counting.
std::vector<double> ranks(const std::vector<double>& values) {
  std::vector<double> all;
  for (const double value : values) {
    double below = 0, same = 0;
    for (const double other : values) {
      below += other < value;
      same += other == value;
    }
    all.push_back(below + (same + 1) / 2);
  }
  return all;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b) {
  double sums[5] = {};
  const auto n = static_cast<double>(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const double terms[] = {a[i], b[i], a[i] * a[i], b[i] * b[i], a[i] * b[i]};
    for (size_t k = 0; k < 5; ++k) sums[k] += terms[k] / n;
  }
  return (sums[4] - sums[0] * sums[1]) /
         std::sqrt((sums[2] - sums[0] * sums[0]) * (sums[3] - sums[1] * sums[1]));
}

TEST_F(CompareFigures, AgreesWithFiguresCountedByHandOnRandomRuns) {
  std::mt19937 random(3);
  std::vector<std::string> runs;
  std::vector<std::vector<double>> integrals;
  std::vector<std::vector<size_t>> forms;  // at which probe, of 20; 20: never
  for (int r = 0; r < 5; ++r) {
    Course course;
    auto& own = integrals.emplace_back();
    auto& dates = forms.emplace_back();
    for (int32_t h = 0; h < 6; ++h) {
      own.push_back(static_cast<double>(random() % 4));
      dates.push_back(random() % 3 == 0 ? 20 : 1 + random() % 18);
      std::vector<double> values(20, 1);
      std::fill(values.begin() + static_cast<int64_t>(dates.back()), values.end(), 60);
      course[{h / 3, h % 3}] = values;
    }
    runs.push_back(record("run" + std::to_string(r), course, [&own](Snapshot& snapshot) {
      for (size_t h = 0; h < 6; ++h) snapshot.heads[h].pr_integral = own[h];
    }));
  }
  const auto found = answer({.runs = runs, .shifts = {110}});
  const auto& induction = found["patterns"][0];
  size_t pair = 0;
  for (size_t a = 0; a < 5; ++a) {
    int64_t size = 0;
    for (size_t h = 0; h < 6; ++h) size += forms[a][h] < 20;
    EXPECT_EQ(induction["circuits"][a]["size"], size);
    EXPECT_NEAR(induction["circuits"][a]["share"].get<double>(), size / 6., 1e-12);
    // Probe p is at step 10 (p + 1) of 200; a head is called at the second probe.
    const auto& points = induction["recall"][a]["recall"];
    ASSERT_EQ(points.size(), 7u);
    for (const auto& point : points) {
      int64_t called = 0;
      for (const size_t date : forms[a])
        called += date < 20 &&
                  static_cast<double>(date + 2) <= 20 * point["fraction"].get<double>() + 1e-9;
      EXPECT_NEAR(point["formed"].get<double>(), static_cast<double>(called) / size, 1e-12);
    }
    const auto& shift = induction["shifts"][a];  // probes 0 .. 9 lie before step 110
    int64_t before = 0;
    for (const size_t date : forms[a]) before += date + 1 <= 9;
    EXPECT_EQ(shift["heads_before"].size(), static_cast<size_t>(before));
    EXPECT_EQ(shift["gained"].size(), static_cast<size_t>(size - before));
    EXPECT_NEAR(shift["jaccard"].get<double>(), static_cast<double>(before) / size, 1e-12);
    for (size_t b = a + 1; b < 5; ++b, ++pair) {
      double both = 0, either = 0;
      for (size_t h = 0; h < 6; ++h) {
        both += forms[a][h] < 20 && forms[b][h] < 20;
        either += forms[a][h] < 20 || forms[b][h] < 20;
      }
      EXPECT_NEAR(induction["overlap"][pair]["jaccard"].get<double>(), both / either, 1e-12);
      EXPECT_NEAR(found["integrals"][pair]["spearman"].get<double>(),
                  correlation(ranks(integrals[a]), ranks(integrals[b])), 1e-12);
    }
  }
}

}  // namespace
}  // namespace headscope
