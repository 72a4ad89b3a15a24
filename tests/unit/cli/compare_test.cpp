// `headscope compare` on histories of runs whose selectivities are given.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "headscope/configuration_prior.h"
#include "plugin/cli/commands.h"
#include "plugin/cli/csv.h"
#include "tests/unit/cli/recorded_course.h"

namespace headscope {
namespace {

using test::Course;
using test::forms_at;
using test::Json;
using test::kOneOfThem;
using test::kTwoHeads;
using test::RecordedCourse;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Compare : public test::ComparedRuns {};

TEST_F(Compare, SaysHowMuchTheCircuitsShare) {
  const auto found = answer({.runs = {record("a", kTwoHeads), record("b", kOneOfThem)}});
  const auto& induction = found["patterns"][0];
  EXPECT_EQ(induction["pattern"], "induction");
  EXPECT_EQ(induction["circuits"][0]["heads"], Json::parse("[[0, 1], [1, 0]]"));
  EXPECT_EQ(induction["circuits"][1]["heads"], Json::parse("[[1, 0]]"));
  EXPECT_EQ(induction["overlap"][0]["runs"], Json::parse("[1, 2]"));
  EXPECT_EQ(induction["overlap"][0]["jaccard"], .5);
  // One of two heads of the first set, each with probability 1 / 6: 2 / 6 of a half.
  EXPECT_NEAR(induction["overlap"][0]["by_chance"].get<double>(), 1. / 6, 1e-12);
  EXPECT_EQ(induction["shared"], Json::parse(R"([{"head": [1, 0], "runs": [1, 2]}])"));
  EXPECT_TRUE(found["patterns"][1]["overlap"][0]["both_empty"].get<bool>());
}

TEST_F(Compare, PutsSizesAndDatesSideBySide) {
  const auto found = answer({.runs = {record("a", kTwoHeads)}})["patterns"][0]["circuits"][0];
  EXPECT_EQ(found["state"], "formed");
  EXPECT_EQ(found["size"], 2);
  EXPECT_EQ(found["of_heads"], 6);
  EXPECT_EQ(found["layers"][1], Json::parse(R"({"layer": 1, "size": 1, "of_heads": 3})"));
  EXPECT_EQ(found["emerging"], Json::parse(R"({"step": 20, "tokens": 20000.0})"));
  EXPECT_EQ(found["formed"]["step"], 30);
  EXPECT_TRUE(found["verified"].is_null());
}

TEST_F(Compare, TellsWhenTheFinalHeadsCouldBeTold) {
  const auto found = answer({.runs = {record("a", kTwoHeads)}})["patterns"][0]["recall"][0];
  const auto& points = found["recall"];
  EXPECT_EQ(points[5]["fraction"], .5);  // 25000 tokens: nothing was certain yet
  EXPECT_EQ(points[5]["emerging_or_formed"], 0);
  EXPECT_EQ(points[6]["formed"], 1);
  const auto longer =
      answer({.runs = {record("b", {{{0, 1}, {1, 3, 3, 3, 3, 60, 60, 60, 60, 60}},
                                    {{1, 0}, {60, 60, 60, 60, 60, 60, 60, 60, 60, 60}}})}});
  const auto& half = longer["patterns"][0]["recall"][0]["recall"][5];  // step 50 of 100
  EXPECT_EQ(half["tokens"], 50000);
  EXPECT_EQ(half["emerging_or_formed"], 1);
  EXPECT_EQ(half["formed"], .5);
}

TEST_F(Compare, ScreensEarlierProbesByTheRecallThresholdOfTheRun) {
  const auto calibrated = [](Snapshot& snapshot) {
    if (snapshot.step > 20) snapshot.circuits[0].recall_threshold = 3;
  };
  const auto found = answer({.runs = {record("a",
                                             {{{0, 1}, {1, 3, 3, 3, 3, 60, 60, 60, 60, 60}},
                                              {{1, 0}, {2.9, 60, 60, 60, 60, 60, 60, 60, 60, 60}}},
                                             calibrated)}});
  const auto& points = found["patterns"][0]["recall"][0]["recall"];
  EXPECT_EQ(points[3]["screened"], 0) << "step 10, both below";
  EXPECT_EQ(points[4]["screened"], 1) << "step 20, both at or above";
  const auto none = answer({.runs = {record("b", kTwoHeads)}})["patterns"][0]["recall"][0];
  EXPECT_TRUE(none["recall"][5]["screened"].is_null());
}

TEST_F(Compare, RanksHeadsByTheirIntegrals) {
  const auto reversed = [](Snapshot& snapshot) {
    for (auto& head : snapshot.heads) head.pr_integral = -head.pr_integral;
    snapshot.heads[0].pr_integral = kNaN;
  };
  const auto a = record("a", kOneOfThem), b = record("b", kOneOfThem, reversed);
  const auto found = answer({.runs = {a, b}})["integrals"][0];
  EXPECT_EQ(found["spearman"], -1);
  EXPECT_EQ(found["heads"], 5);
}

TEST_F(Compare, ShowsTheCircuitBeforeAndAfterAStepThatTheUserNames) {
  const Course course = {{{0, 1}, {60, 60, 60, 1, 1, 1}},
                         {{1, 0}, {60, 60, 60, 60, 60, 60}},
                         {{1, 2}, {1, 1, 1, 60, 60, 60}}};
  const auto run = record("a", course);
  EXPECT_TRUE(answer({.runs = {run}})["patterns"][0]["shifts"].empty());
  const auto found = answer({.runs = {run}, .shifts = {35}})["patterns"][0]["shifts"][0];
  EXPECT_EQ(found["before"]["step"], 30);
  EXPECT_EQ(found["shift"]["step"], 40);
  EXPECT_EQ(found["lost"], Json::parse("[[0, 1]]"));
  EXPECT_EQ(found["gained"], Json::parse("[[1, 2]]"));
  EXPECT_DOUBLE_EQ(found["jaccard"].get<double>(), 1. / 3);
  EXPECT_EQ(found["reading"], "changed");
}

TEST_F(Compare, ShowsTheCircuitBeforeAndAfterAPhaseThatCountsStepsAnew) {
  const auto run_dir = folder_.file("a");
  {
    RecordedCourse recorded(run_dir);
    recorded.take({{{0, 1}, {60, 60, 60}}});
    recorded.count_steps_anew();
    recorded.take({{{0, 1}, {1, 1, 1}}, {{1, 2}, {60, 60, 60}}});
  }
  const auto found = answer({.runs = {run_dir}});
  EXPECT_EQ(found["runs"][0]["parts"], 2);
  const auto& shift = found["patterns"][0]["shifts"][0];
  EXPECT_EQ(shift["heads_before"], Json::parse("[[0, 1]]"));
  EXPECT_EQ(shift["heads_after"], Json::parse("[[1, 2]]"));
  EXPECT_EQ(shift["reading"], "rewritten");
  EXPECT_TRUE(found["patterns"][0]["recall"].empty());  // tokens go back: no share of them
}

TEST_F(Compare, PutsAblationsSideBySide) {
  const auto ablated = [](double effect) {
    return [effect](Snapshot& snapshot) {
      AblationReport report;
      report.pattern = "induction";
      report.metric = "planted_loss";
      report.gate = true;
      report.effect = effect;
      report.difference_low = effect - 1;
      report.control_effects = {.1, .2};
      report.verdict = CircuitState::kVerified;
      snapshot.ablations = {report};
    };
  };
  const auto found =
      answer({.runs = {record("a", kOneOfThem, ablated(2)), record("b", kOneOfThem, ablated(3))}});
  const auto& ablations = found["patterns"][0]["ablations"];
  EXPECT_EQ(ablations.size(), 2u);
  EXPECT_EQ(ablations[0]["reports"], 5);
  EXPECT_EQ(ablations[1]["effect"], 3);
  EXPECT_EQ(ablations[1]["difference_low"], 2);
  EXPECT_EQ(ablations[1]["control_effects"], 2);
  EXPECT_EQ(ablations[1]["verdict"], "verified");
}

TEST_F(Compare, HoldsRunsAgainstTheBandOfReferences) {
  const auto found =
      answer({.runs = {record("in", forms_at(4, 9)), record("late", forms_at(6, 9)),
                       record("early", forms_at(1, 9)), record("absent", forms_at(0, 9)),
                       record("young", forms_at(0, 4))},
              .references = {record("r1", forms_at(3, 9)), record("r2", forms_at(5, 9))}});
  const auto& band = found["patterns"][0]["bands"][1];
  EXPECT_EQ(band["milestone"], "formed");
  EXPECT_EQ(band["low"], 20000);  // the probe before the first reference's date
  EXPECT_EQ(band["high"], 50000);
  EXPECT_FALSE(band.contains("note"));
  std::vector<std::string> standings;
  for (const auto& run : band["runs"]) standings.push_back(run["standing"]);
  EXPECT_THAT(standings,
              ::testing::ElementsAre("in band", "late", "early", "absent", "not due yet"));
  EXPECT_EQ(band["runs"][1]["after"], 50000);
  EXPECT_EQ(band["runs"][1]["tokens"], 60000);
  EXPECT_DOUBLE_EQ(band["runs"][1]["ratio"].get<double>(), 1);  // at least
  EXPECT_DOUBLE_EQ(band["runs"][2]["ratio"].get<double>(), 2);
  EXPECT_DOUBLE_EQ(band["runs"][3]["ratio"].get<double>(), 8. / 5);
  const auto& never = found["patterns"][1]["bands"][1];  // previous-token, in no reference
  EXPECT_EQ(never["dated"], 0);
  EXPECT_EQ(never["runs"][0]["standing"], "no band");
}

/// A run whose probes lie at the steps given; induction forms at the first that is `at` or more.
std::string record_at(const std::string& run_dir, const std::vector<int64_t>& steps, int64_t at) {
  RecordedCourse recorded(run_dir);
  for (const int64_t step : steps) {
    recorded.go_to(step);
    recorded.take({{{0, 0}, {step >= at ? 60. : 1.}}});
  }
  return run_dir;
}

TEST_F(Compare, HoldsNothingAgainstARunThatItsProbesLeaveOpen) {
  const auto standing = [&](const std::string& name, const std::vector<int64_t>& steps,
                            int64_t at) {
    const auto run = record_at(folder_.file(name), steps, at);
    const auto other = record_at(folder_.file(name + "r"), {30, 40, 50, 60}, 40);
    const auto found =
        answer({.runs = {run},
                .references = {other, record_at(folder_.file(name + "s"), {30, 50, 60, 70}, 50)}});
    const auto& band = found["patterns"][0]["bands"][1];
    EXPECT_EQ(band["low"], 30000);
    EXPECT_EQ(band["high"], 50000);
    return band["runs"][0]["standing"].get<std::string>();
  };
  // It had it at 80, and may have had it from 41 on; or from 50 on.
  EXPECT_EQ(standing("a", {40, 80, 90}, 80), "in band");
  EXPECT_EQ(standing("b", {50, 80, 90}, 80), "late");
  // It had it by 31, or by 30: a reference may have had it right after 30.
  EXPECT_EQ(standing("c", {10, 31, 40}, 31), "in band");
  EXPECT_EQ(standing("d", {10, 30, 40}, 30), "early");
  // Its last probe may be the first of two that make it; the one before is not.
  EXPECT_EQ(standing("e", {40, 90}, 90), "not due yet");
  EXPECT_EQ(standing("f", {50, 90}, 90), "absent");
}

TEST_F(Compare, SaysThatABandOfOneHasNoWidth) {
  const auto run = record("a", forms_at(8, 9)), reference = record("r", forms_at(3, 9));
  const auto found = answer({.runs = {run}, .references = {reference}});
  const auto& band = found["patterns"][0]["bands"][1];
  EXPECT_EQ(band["factor"], 2);
  EXPECT_EQ(band["high"], 60000);
  EXPECT_EQ(band["runs"][0]["standing"], "late");
  EXPECT_THAT(band["note"], HasSubstr("no width"));
  const auto wider = answer({.runs = {run}, .references = {reference}, .band_factor = 3});
  EXPECT_EQ(wider["patterns"][0]["bands"][1]["runs"][0]["standing"], "in band");
}

TEST_F(Compare, PutsThePriorBesideTheMeasuredDate) {
  const auto found = answer({.runs = {record("a", kOneOfThem)}, .batch = 16, .context = 64});
  const double prior = configuration_prior_tokens(16, 64);
  EXPECT_EQ(found["prior"]["tokens"], prior);
  EXPECT_EQ(found["prior"]["runs"][0]["formed_tokens"], 30000);
  EXPECT_DOUBLE_EQ(found["prior"]["runs"][0]["ratio"].get<double>(), 30000 / prior);
}

TEST_F(Compare, GoesByStepsWhereTokensAreNotKnown) {
  const auto untold = [](Snapshot& snapshot) {
    snapshot.tokens = kNaN;
    for (auto& circuit : snapshot.circuits) circuit.formed_tokens = circuit.emerging_tokens = kNaN;
    for (auto& event : snapshot.events) event.tokens = kNaN;
  };
  const auto found =
      answer({.runs = {record("a", kTwoHeads, untold)}, .references = {record("b", kTwoHeads)}});
  EXPECT_EQ(found["axis"], "steps");
  EXPECT_EQ(found["patterns"][0]["bands"][1]["runs"][0]["steps"], 30);
  EXPECT_EQ(found["patterns"][0]["recall"][0]["recall"][6]["formed"], 1);
}

TEST_F(Compare, PrintsTables) {
  const auto text = cli::compare({.runs = {record("a", kTwoHeads), record("b", forms_at(0, 9))},
                                  .references = {record("r", kTwoHeads)},
                                  .batch = 4,
                                  .context = 16});
  EXPECT_THAT(text, HasSubstr("\n  1    formed   20000 (step 20)   30000 (step 30)  -"));
  EXPECT_THAT(text, HasSubstr("2 of 6, 33.3 %  0.1 1.0"));
  EXPECT_THAT(text, HasSubstr("absent at 80000, 1.333 times the band's end"));
  EXPECT_THAT(text, HasSubstr("prior from the configuration only"));
  EXPECT_THAT(text, HasSubstr("run 2  not formed by 90000"));
}

TEST_F(Compare, RefusesRunsOfOtherDefinitions) {
  const auto run = record("a", kOneOfThem);
  const auto refused = [&](const std::string& name, const RecordedCourse::Change& change) {
    return refusal({.runs = {run, record(name, kOneOfThem, change)}});
  };
  EXPECT_THAT(refused("b", [](Snapshot& s) { s.context = 512; }),
              AllOf(HasSubstr("context 512 against 256"), HasSubstr("ProbeOptions::context"),
                    HasSubstr(run)));
  EXPECT_THAT(refused("c", [](Snapshot& s) { s.controls = "analytic"; }),
              HasSubstr("analytic against measured_all"));
  EXPECT_THAT(refused("d", [](Snapshot& s) { s.integral_axis = "step"; }),
              HasSubstr("step against ln_tokens"));
  EXPECT_THAT(refused("e", [](Snapshot& s) { s.patterns[1] = "mine"; }),
              HasSubstr("induction, mine against induction, previous-token"));
  EXPECT_THAT(refused("f", [](Snapshot& s) { s.heads.pop_back(); }),
              HasSubstr("layer 0: 3, layer 1: 2 against 3 in each of 2 layers"));
  EXPECT_THAT(refused("g", [](Snapshot& s) { s.circuits[0].formed_threshold = 25; }),
              AllOf(HasSubstr("induction 25,"), HasSubstr("ProbeOptions::window")));
  EXPECT_THAT(refused("h",
                      [](Snapshot& s) {
                        for (auto& head : s.heads) head.samples = 64;
                      }),
              HasSubstr("64 against 128"));
  EXPECT_THAT(refused("i",
                      [](Snapshot& s) {
                        for (auto& event : s.events) event.rule = "reference: " + event.rule;
                      }),
              HasSubstr("reference against headscope"));
  EXPECT_THAT(refused("j", [](Snapshot& s) { s.circuits.clear(); }),
              HasSubstr("none against induction 50"));
  EXPECT_EQ(refusal({.runs = {run, record("k", forms_at(0, 5))}}), "");  // its rules are not known
  EXPECT_THAT(refusal({.runs = {run}, .references = {record("r", kOneOfThem, {}, 64)}}),
              HasSubstr("context 64 against 256"));
}

TEST_F(Compare, RefusesARunThatChangedItsDefinition) {
  const auto run = record("a", kOneOfThem, [](Snapshot& s) { s.context = s.step < 30 ? 64 : 256; });
  EXPECT_THAT(refusal({.runs = {run}}), HasSubstr("context changed from 64 at step 20 to 256"));
}

TEST_F(Compare, RefusesWhatMakesNoSense) {
  const auto run = record("a", kOneOfThem);
  EXPECT_THAT(refusal({.runs = {}}), HasSubstr("no run directory"));
  EXPECT_THAT(refusal({.runs = {run, run + "/."}}), HasSubstr("given twice"));
  EXPECT_THAT(refusal({.runs = {run}, .references = {run}}), HasSubstr("given twice"));
  EXPECT_THAT(refusal({.runs = {run}, .batch = 4}),
              HasSubstr("--batch is given without --context"));
  EXPECT_THAT(refusal({.runs = {run}, .band_factor = 1}), HasSubstr("--band-factor is 1"));
  EXPECT_THAT(refusal({.runs = {run}, .shifts = {60}}),
              AllOf(HasSubstr("--shift 60"), HasSubstr("from 10 to 50")));
  const auto trained = record("t", kOneOfThem, [](Snapshot& s) { s.source = Source::kTrain; });
  EXPECT_THAT(refusal({.runs = {trained}}), HasSubstr("holds no probe"));
  EXPECT_THROW(cli::compare({.runs = {folder_.file("none")}}), std::runtime_error);
  EXPECT_THROW(cli::compare({.runs = {run}, .batch = 0, .context = 4}), std::invalid_argument);
}

}  // namespace
}  // namespace headscope
