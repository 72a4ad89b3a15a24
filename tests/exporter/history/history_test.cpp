#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "csrc/exporter/history/file_system.h"
#include "csrc/exporter/history/history_json.h"
#include "csrc/exporter/history/sqlite.h"
#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/exporter/snapshot_equal.h"
#include "tests/support/needs.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using exporter::Database;
using ::testing::ElementsAre;
using testing::expect_same;
using ::testing::HasSubstr;
using testing::sample_snapshot;
using testing::shared;
using testing::TemporaryDirectory;

Snapshot at(int64_t step, int64_t segment = 0, Source source = Source::kTrain) {
  Snapshot snapshot = sample_snapshot(step, source, {1, 2, 2, {"induction"}});
  snapshot.segment = segment;
  return snapshot;
}

void write(const std::string& run_dir, const std::vector<Snapshot>& snapshots) {
  const auto history = open_history({.run_dir = run_dir, .facts = {}, .log = {}});
  for (const Snapshot& snapshot : snapshots) history->publish(shared(snapshot));
}

/// Steps and segments as read, e.g. "10/0 20/1".
std::string steps_and_segments_of(const std::string& run_dir) {
  std::string steps;
  for (const auto& snapshot : read_history(run_dir).snapshots) {
    steps += (steps.empty() ? "" : " ") + std::to_string(snapshot->step) + "/" +
             std::to_string(snapshot->segment);
  }
  return steps;
}

int64_t count(const std::string& run_dir, const std::string& table) {
  Database database(run_dir + "/history.sqlite", Database::Mode::kReadOnly);
  return database.integer_of("SELECT count(*) FROM " + table);
}

TEST(History, RoundTripsEveryFieldBitForBit) {
  const TemporaryDirectory directory;
  Snapshot snapshot = sample_snapshot();
  snapshot.segment = 3;
  const double odd[] = {-0.0,     5e-324,    std::numeric_limits<double>::max(),
                        HUGE_VAL, -HUGE_VAL, kNaN,
                        0.1,      1e23,      1.0 / 3};
  for (size_t i = 0; i < std::size(odd); ++i) {
    snapshot.heads[i].pr_integral = odd[i];
    snapshot.heads[i].patterns[1].margin = odd[i];
    snapshot.events[0].figures["odd" + std::to_string(i)] = odd[i];
    snapshot.ablations[0].control_effects.push_back(odd[i]);
  }
  snapshot.tokens = -0.0;
  snapshot.loss = kNaN;
  snapshot.circuits[0].best_selectivity = HUGE_VAL;
  snapshot.events[0].rule = "quote ' \" \\ \n \xC3\xA9";
  snapshot.heads[2].finite = false;
  write(directory.path(), {snapshot});
  const RunHistory history = read_history(directory.path());
  ASSERT_EQ(history.snapshots.size(), 1u);
  expect_same(*history.snapshots[0], snapshot);
}

TEST(History, RoundTripsATrainingSnapshot) {
  const TemporaryDirectory directory;
  const Snapshot snapshot = sample_snapshot(600, Source::kTrain);
  write(directory.path(), {snapshot});
  expect_same(*read_history(directory.path()).snapshots.at(0), snapshot);
}

TEST(History, RoundTripsASnapshotWithoutHeads) {
  const TemporaryDirectory directory;
  write(directory.path(), {Snapshot{}});
  expect_same(*read_history(directory.path()).snapshots.at(0), Snapshot{});
}

TEST(History, NamesThatAreNotUtf8AreKeptReadable) {
  const TemporaryDirectory directory;
  Snapshot snapshot = sample_snapshot();
  snapshot.events[0].rule = "bad \xFF byte";
  write(directory.path(), {snapshot});
  EXPECT_EQ(read_history(directory.path()).snapshots.at(0)->events.at(0).rule, "bad \uFFFD byte");
}

TEST(History, KeepsTheFacts) {
  const TemporaryDirectory directory;
  const RunFacts facts = {{"run_id", "a'b"}, {"torch", "2.13.0"}};
  static_cast<void>(open_history({.run_dir = directory.path(), .facts = facts, .log = {}}));
  EXPECT_EQ(read_history(directory.path()).facts, facts);
}

TEST(History, CreatesTheRunDirectory) {
  const TemporaryDirectory directory;
  write(directory.file("runs/a"), {at(0)});
  EXPECT_EQ(steps_and_segments_of(directory.file("runs/a")), "0/0");
}

TEST(History, ReadsInOrderOfStep) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(30, 0, Source::kProbe), at(20)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/0 30/0");
}

TEST(History, AWallClockThatGoesBackChangesNoOrder) {
  const TemporaryDirectory directory;
  std::vector<Snapshot> snapshots = {at(10), at(20), at(30)};
  for (size_t i = 0; i < 3; ++i) snapshots[i].wall_time = 1.75e9 - 3600.0 * static_cast<double>(i);
  write(directory.path(), snapshots);
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/0 30/0");
  EXPECT_EQ(read_history(directory.path()).snapshots[2]->wall_time, 1.75e9 - 7200);
}

TEST(History, KeepsBothSourcesOfAStep) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(10, 0, Source::kProbe)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 10/0");
}

TEST(History, AResumedRunSupersedesTheStepsItReplays) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20), at(30), at(40)});
  write(directory.path(), {at(30, 1), at(40, 1), at(50, 1)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/0 30/1 40/1 50/1");
  EXPECT_EQ(count(directory.path(), "superseded_snapshot"), 2);
}

TEST(History, StepsBeyondAShorterReplayAreSuperseded) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20), at(30), at(40)});
  write(directory.path(), {at(20, 1)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/1");
}

TEST(History, ResumingWithinAProcessSupersedesToo) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20), at(20, 1), at(30, 1)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/1 30/1");
}

// Where a budget shifts the schedule, a resumed run may measure other steps than the one that died.
TEST(History, ASegmentSupersedesFromItsStart) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20), at(25), at(30)});
  Snapshot resumed = at(27, 1);
  resumed.segment_start = 20;
  write(directory.path(), {resumed});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 27/1");
}

TEST(History, EventsAloneReplaceNoReadingOfTheirStep) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20), at(30)});
  Snapshot verdict = at(20, 1);
  verdict.heads.clear();
  write(directory.path(), {verdict});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/0 20/1");
}

TEST(History, EveryLaterResumptionWins) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20), at(30)});
  write(directory.path(), {at(20, 1), at(30, 1)});
  write(directory.path(), {at(30, 2), at(40, 2)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/1 30/2 40/2");
}

TEST(History, ResumingTheSameCheckpointTwiceKeepsTheSecond) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20)});
  write(directory.path(), {at(20, 1), at(30, 1), at(40, 1)});
  write(directory.path(), {at(20, 1), at(30, 1)});
  EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0 20/1 30/1");
  EXPECT_EQ(count(directory.path(), "snapshot"), 7);
}

TEST(History, EventsOfSupersededSnapshotsAreNotCountedTwice) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10, 0, Source::kProbe), at(20, 0, Source::kProbe)});
  write(directory.path(), {at(20, 1, Source::kProbe)});
  EXPECT_EQ(count(directory.path(), "event"), 3);
  EXPECT_EQ(count(directory.path(), "current_event"), 2);
  EXPECT_EQ(count(directory.path(), "current_ablation"), 2);
}

TEST(History, ANewRunInAUsedDirectorySupersedesAllAndSaysSo) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20)});
  std::string warnings;
  const auto history = open_history({.run_dir = directory.path(),
                                     .facts = {{"run_id", "new"}},
                                     .log = [&](LogLevel level, const std::string& line) {
                                       if (level == LogLevel::kWarning) warnings += line;
                                     }});
  history->publish(shared(at(15)));
  EXPECT_EQ(steps_and_segments_of(directory.path()), "15/0");
  EXPECT_THAT(warnings, HasSubstr("holds an earlier run"));
}

TEST(History, AnotherProcessReadsWhileWeWrite) {
  const TemporaryDirectory directory;
  const auto history = open_history({.run_dir = directory.path(), .facts = {}, .log = {}});
  history->publish(shared(at(10)));
  const std::string command =
      "sqlite3 -readonly " + directory.path() + "/history.sqlite 'SELECT count(*) FROM snapshot'";
  HEADSCOPE_NEED_PROGRAM("sqlite3");
  Database reader(directory.file("history.sqlite"), Database::Mode::kReadOnly);
  reader.execute("BEGIN");
  EXPECT_EQ(reader.integer_of("SELECT count(*) FROM snapshot"), 1);
  history->publish(shared(at(20)));  // while a read transaction is open
  EXPECT_EQ(reader.integer_of("SELECT count(*) FROM snapshot"), 1);
  EXPECT_EQ(std::system((command + " | grep -qx 2").c_str()), 0);
}

TEST(History, UsesTheLogLocallyAndTheJournalOnNetworks) {
  for (const bool network : {false, true}) {
    const TemporaryDirectory directory;
    const auto history = open_history(
        {.run_dir = directory.path(), .facts = {}, .log = {}, .assume_network = network});
    Database database(directory.file("history.sqlite"), Database::Mode::kReadOnly);
    EXPECT_EQ(database.text_of("PRAGMA journal_mode"), network ? "delete" : "wal");
    history->publish(shared(at(10)));
    EXPECT_EQ(steps_and_segments_of(directory.path()), "10/0");
  }
}

TEST(History, AFinishedHistoryIsOneFile) {
  const TemporaryDirectory directory;
  write(directory.path(), {at(10), at(20)});
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory.path())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_THAT(names, ElementsAre("history.sqlite"));
  // In the other mode, a read-only medium could not open it.
  Database database(directory.file("history.sqlite"), Database::Mode::kReadOnly);
  EXPECT_EQ(database.text_of("PRAGMA journal_mode"), "delete");
}

TEST(History, ClosingLeavesAReaderAlone) {
  const TemporaryDirectory directory;
  const auto history = open_history({.run_dir = directory.path(), .facts = {}, .log = {}});
  history->publish(shared(at(10)));
  Database reader(directory.file("history.sqlite"), Database::Mode::kReadOnly);
  reader.execute("BEGIN");
  EXPECT_EQ(reader.integer_of("SELECT count(*) FROM snapshot"), 1);
  history->close();
  EXPECT_EQ(reader.integer_of("SELECT count(*) FROM snapshot"), 1);
}

TEST(FileSystem, KnowsNetworkTypes) {
  EXPECT_TRUE(exporter::is_network_type(0x6969));                   // NFS
  EXPECT_TRUE(exporter::is_network_type(0xFFFFFFFFFF534D42));       // CIFS, sign-extended
  EXPECT_TRUE(exporter::is_network_type(0x65735546));               // FUSE
  EXPECT_FALSE(exporter::is_network_type(0xEF53));                  // ext4
  EXPECT_FALSE(exporter::is_network_type(0x01021994));              // tmpfs
  EXPECT_FALSE(exporter::is_network_type(0x794C7630));              // overlayfs
  EXPECT_TRUE(exporter::on_network_file_system("/no/such/place"));  // the careful answer
}

// Written rows keep the order in which their keys have always stood.
TEST(HistoryJson, AnAblationKeepsTheOrderOfItsKeys) {
  const std::string text = exporter::to_json(AblationReport{});
  size_t last = 0;
  for (const char* key : {"pattern",
                          "metric",
                          "gate",
                          "step",
                          "heads",
                          "baseline_loss",
                          "ablated_loss",
                          "effect",
                          "effect_low",
                          "effect_high",
                          "control_effects",
                          "control_sets",
                          "single_head_effects",
                          "control_mean",
                          "difference_low",
                          "difference_high",
                          "label_effects",
                          "labelled_effect",
                          "p_value",
                          "level",
                          "upper_bound_effect",
                          "attainable_p",
                          "examples",
                          "verdict",
                          "reason"}) {
    const size_t place = text.find('"' + std::string(key) + "\":");
    ASSERT_NE(place, std::string::npos) << key;
    EXPECT_GE(place, last) << key;
    last = place;
  }
}

}  // namespace
}  // namespace headscope
