// `headscope history` prints what rank and replay read.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "headscope/built_in_sinks.h"
#include "headscope/screen.h"
#include "plugin/cli/commands.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class CliHistory : public ::testing::Test {
 protected:
  /// One head that goes 1x, 60x, 60x; PR 2, 4, 8; a training reading in between.
  void record() {
    const auto sink = open_history({.run_dir = folder_.path(), .facts = {{"run", "a"}}, .log = {}});
    double participation_ratio = 2;
    for (const double selectivity : {1., 60., 60.}) {
      Snapshot snapshot;
      snapshot.step = ++step_;
      snapshot.tokens = 1e3 * static_cast<double>(step_);
      snapshot.source = Source::kProbe;
      snapshot.context = 256;
      snapshot.patterns = {"induction"};
      auto& head = snapshot.heads.emplace_back();
      head.id = {1, 4};
      head.participation_ratio = participation_ratio;
      head.patterns = {{.selectivity = selectivity}};
      participation_ratio *= 2;
      sink->publish(std::make_shared<const Snapshot>(snapshot));
      snapshot.source = Source::kTrain;
      snapshot.step = ++step_;
      sink->publish(std::make_shared<const Snapshot>(snapshot));
    }
    sink->close();
  }

  std::string saved(const std::string& text) {
    const auto path = folder_.file("out.csv");
    std::ofstream(path) << text;
    return path;
  }

  headscope::testing::TemporaryDirectory folder_;
  int64_t step_ = 0;
};

TEST_F(CliHistory, GivesReplayTheRun) {
  record();
  const auto answer = nlohmann::json::parse(
      cli::replay({.file = saved(cli::history({.run_dir = folder_.path()})), .context = {}}));
  ASSERT_EQ(answer["events"].size(), 2u);
  EXPECT_EQ(answer["events"][1]["state"], "formed");
  EXPECT_EQ(answer["events"][1]["step"], 5);
  EXPECT_EQ(answer["definition"]["context"], 256);
}

/// The last row of a table: a probe of 1024 tokens whose query sees 128.
Snapshot windowed_probe(int64_t step) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.source = Source::kProbe;
  snapshot.context = 1024;
  snapshot.patterns = {"induction", "mine"};
  snapshot.circuits.resize(2);
  snapshot.circuits[0].formed_threshold = scaled_threshold(50, 128);  // 24.9
  snapshot.circuits[1].formed_threshold = 7;
  auto& head = snapshot.heads.emplace_back();
  head.patterns = {{.selectivity = 30}, {.selectivity = 7}};
  return snapshot;
}

TEST_F(CliHistory, GivesReplayTheThresholdsOfAWindow) {
  const auto sink = open_history({.run_dir = folder_.path(), .facts = {}, .log = {}});
  for (const int64_t step : {1, 2})
    sink->publish(std::make_shared<const Snapshot>(windowed_probe(step)));
  sink->close();
  const auto file = saved(cli::history({.run_dir = folder_.path()}));
  const auto answer = nlohmann::json::parse(cli::replay({.file = file, .context = {}}));
  const auto& stated = answer["definition"];
  EXPECT_EQ(stated["context"], 128);
  EXPECT_EQ(stated["formed_selectivity"]["induction"]["at_context"], scaled_threshold(50, 128));
  EXPECT_EQ(stated["formed_selectivity"]["induction"]["at_256"], 50);
  EXPECT_NEAR(stated["formed_selectivity"]["mine"]["at_context"].get<double>(), 7, 1e-12);
  EXPECT_EQ(answer["final"][0]["state"], "formed");
  // What is asked for comes before what was recorded.
  const auto asked = nlohmann::json::parse(cli::replay({.file = file, .context = 1024}));
  EXPECT_EQ(asked["definition"]["context"], 1024);
  EXPECT_EQ(asked["final"][0]["state"], "emerging");
  const auto reference =
      nlohmann::json::parse(cli::replay({.file = file, .context = {}, .rules = "reference"}));
  EXPECT_EQ(reference["definition"]["formed_selectivity"]["induction"]["at_context"], 50);
}

TEST_F(CliHistory, GivesScreenTheThresholdsOfAWindow) {
  Snapshot snapshot = windowed_probe(1);
  // Read at several query positions: its threshold scales with fewer tokens than induction's.
  snapshot.patterns.push_back("previous-token");
  snapshot.circuits.resize(3);
  snapshot.circuits[2].formed_threshold = scaled_threshold(100, 90);  // 34.9
  snapshot.heads[0].patterns.push_back({.selectivity = 40});
  const auto sink = open_history({.run_dir = folder_.path(), .facts = {}, .log = {}});
  sink->publish(std::make_shared<const Snapshot>(snapshot));
  sink->close();
  const auto file = saved(cli::history({.run_dir = folder_.path()}));
  const auto screened = [&](const std::string& rules, std::optional<int64_t> context) {
    return nlohmann::json::parse(cli::screen(
        {.file = file, .step = {}, .context = context, .rules = rules, .top = {}, .json = true}));
  };
  const auto found = screened("headscope", {});
  const auto& stated = found["definition"];
  EXPECT_EQ(stated["context"], 128);
  EXPECT_DOUBLE_EQ(stated["class_selectivity"].get<double>(), scaled_threshold(30, 128));
  const auto at_context = [&](const char* pattern) {
    return stated["formed_selectivity"][pattern]["at_context"].get<double>();
  };
  EXPECT_EQ(at_context("induction"), scaled_threshold(50, 128));
  EXPECT_NEAR(at_context("previous-token"), scaled_threshold(100, 90), 1e-12);
  EXPECT_NEAR(at_context("mine"), 7, 1e-12);
  for (const char* pattern : {"induction", "previous-token", "mine"})
    EXPECT_EQ(found["screens"][0]["circuits"][pattern].size(), 1u) << pattern;
  EXPECT_EQ(screened("headscope", 1024)["screens"][0]["circuits"]["induction"].size(), 0u);
  EXPECT_EQ(
      screened("reference", {})["definition"]["formed_selectivity"]["induction"]["at_context"], 50);
}

TEST_F(CliHistory, GivesScreenTheRecallThresholdOfTheRunsOwnScreen) {
  Snapshot snapshot = windowed_probe(1);
  snapshot.circuits[0].recall_threshold = 2.5;
  snapshot.heads[0].patterns[0].selectivity = 2.5;
  snapshot.heads.push_back(snapshot.heads[0]);
  snapshot.heads[1].id = {0, 1};
  snapshot.heads[1].patterns[0].selectivity = 2.4;
  snapshot.calibrations = {{.step = 1, .pattern = "induction", .recall_threshold = 2.5}};
  const auto sink = open_history({.run_dir = folder_.path(), .facts = {}, .log = {}});
  sink->publish(std::make_shared<const Snapshot>(snapshot));
  sink->close();
  const auto file = saved(cli::history({.run_dir = folder_.path()}));
  cli::ScreenArguments arguments{.file = file, .step = {}, .context = {}, .top = {}, .json = true};
  const auto found = nlohmann::json::parse(cli::screen(arguments));
  EXPECT_EQ(found["definition"]["recall_selectivity"],
            nlohmann::json::parse(R"({"induction": 2.5})"));
  EXPECT_EQ(found["screens"][0]["above_recall"],
            nlohmann::json::parse(R"({"induction": [[0, 0]]})"));
  arguments.json = false;
  EXPECT_THAT(cli::screen(arguments),
              ::testing::HasSubstr("above noise        induction 1 (2.5)\n"));
  const auto all = nlohmann::json::parse(cli::history({.run_dir = folder_.path(), .json = true}));
  EXPECT_EQ(all["calibrations"][0]["recall_threshold"], 2.5);
  EXPECT_EQ(all["readings"][0]["recall_threshold"], 2.5);
}

TEST_F(CliHistory, NamesThePhasesOfARunThatCountsStepsAnew) {
  const auto sink = open_history({.run_dir = folder_.path(), .facts = {}, .log = {}});
  double clock = 1e9, participation_ratio = 3;
  for (const int64_t step : {0, 10, 0, 10}) {
    Snapshot snapshot = windowed_probe(step);
    snapshot.tokens = 1 + 9 * static_cast<double>(step);
    snapshot.wall_time = ++clock;
    snapshot.heads[0].participation_ratio = participation_ratio++;
    sink->publish(std::make_shared<const Snapshot>(snapshot));
  }
  sink->close();
  const auto file = saved(cli::history({.run_dir = folder_.path()}));
  const auto ranked = nlohmann::json::parse(cli::rank({.file = file, .top = {}}));
  EXPECT_EQ(ranked["definition"]["phases"], nlohmann::json::parse(R"(["1", "2"])"));
  EXPECT_DOUBLE_EQ(ranked["heads"][0]["integral"].get<double>(),
                   std::log(91) * (2 + 3) / 2 + std::log(91) * (4 + 5) / 2);
  const auto replayed = nlohmann::json::parse(cli::replay({.file = file, .context = {}}));
  EXPECT_EQ(replayed["definition"]["stretches"], 2);
}

TEST_F(CliHistory, GivesRankTheProbesReadingsOnly) {
  record();
  const auto answer = nlohmann::json::parse(
      cli::rank({.file = saved(cli::history({.run_dir = folder_.path(), .source = "all"})),
                 .axis = "step",
                 .top = {}}));
  EXPECT_EQ(answer["heads"][0]["integral"], 2 * (1 + 3) / 2. + 2 * (3 + 7) / 2.);
  EXPECT_EQ(answer["definition"]["rows"], 3);
}

TEST_F(CliHistory, LeavesOutWhatWasNotMeasured) {
  record();
  const auto text = cli::history({.run_dir = folder_.path()});
  EXPECT_THAT(text, StartsWith("step,tokens,source,context,layer,head,pattern,selectivity,"));
  EXPECT_THAT(text, HasSubstr("\n3,3000,probe,256,1,4,induction,60,,,,,4,,,,\n"));
  EXPECT_THAT(text, Not(HasSubstr("nan")));
}

TEST_F(CliHistory, PrintsJson) {
  record();
  const auto answer =
      nlohmann::json::parse(cli::history({.run_dir = folder_.path(), .json = true}));
  EXPECT_EQ(answer["facts"]["run"], "a");
  EXPECT_EQ(answer["readings"].size(), 3u);
  EXPECT_TRUE(answer["readings"][0]["mass"].is_null());
}

TEST_F(CliHistory, PrintsAllOfAnAblationAsJson) {
  const auto sink = open_history({.run_dir = folder_.path(), .facts = {}, .log = {}});
  Snapshot snapshot = windowed_probe(1);
  snapshot.circuits[0].judged_heads = {{0, 0}};
  snapshot.circuits[0].critical_margin_z = 4.5;
  AblationReport report;
  report.pattern = "induction";
  report.metric = "planted_loss";
  report.effect_low = 1.5;
  report.effect_high = 2.5;
  report.p_value = .05;
  report.level = .03;
  report.label_effects = {.1, .25};
  report.control_sets = {{{0, 1}, {2, 3}}, {{4, 5}}};
  report.verdict = CircuitState::kUnspecific;
  snapshot.ablations = {report};
  sink->publish(std::make_shared<const Snapshot>(snapshot));
  sink->close();
  const auto answer =
      nlohmann::json::parse(cli::history({.run_dir = folder_.path(), .json = true}));
  const auto& ablation = answer["ablations"][0];
  EXPECT_EQ(ablation["effect_low"], 1.5);
  EXPECT_EQ(ablation["effect_high"], 2.5);
  EXPECT_EQ(ablation["p_value"], .05);
  EXPECT_EQ(ablation["level"], .03);
  EXPECT_EQ(ablation["label_effects"], nlohmann::json::parse("[0.1, 0.25]"));
  EXPECT_EQ(ablation["control_sets"], nlohmann::json::parse("[[[0, 1], [2, 3]], [[4, 5]]]"));
  EXPECT_TRUE(ablation["single_head_effects"].is_array());
  EXPECT_EQ(ablation["verdict"], "unspecific");
  EXPECT_TRUE(ablation["control_mean"].is_null());
  EXPECT_EQ(answer["circuits"][0]["critical_margin_z"], 4.5);
  EXPECT_EQ(answer["circuits"][0]["judged_heads"], nlohmann::json::parse("[[0, 0]]"));
}

TEST_F(CliHistory, NamesAFolderWithoutAHistory) {
  try {
    cli::history({.run_dir = folder_.path()});
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), HasSubstr(folder_.path()));
  }
}

}  // namespace
}  // namespace headscope
