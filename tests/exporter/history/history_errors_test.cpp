#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "csrc/exporter/history/sqlite.h"
#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/full_disk.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope {
namespace {

using exporter::Database;
using ::testing::AllOf;
using testing::FullDisk;
using ::testing::HasSubstr;
using testing::sample_snapshot;
using testing::shared;
using testing::TemporaryDirectory;
using ::testing::ThrowsMessage;

std::shared_ptr<Sink> open(const std::string& run_dir) {
  return open_history({.run_dir = run_dir, .facts = {}, .log = {}});
}

/// A directory with a history of one snapshot, changed by one SQL statement.
void make_history(const std::string& run_dir, const std::string& change) {
  open(run_dir)->publish(shared(sample_snapshot()));
  Database(run_dir + "/history.sqlite", Database::Mode::kReadWriteCreate).execute(change);
}

TEST(HistoryErrors, ADirectoryThatCannotBeCreated) {
  EXPECT_THAT([] { open("/proc/headscope"); },
              ThrowsMessage<std::runtime_error>(
                  AllOf(HasSubstr("'/proc/headscope'"), HasSubstr("can be written"))));
  EXPECT_THROW(open(""), std::runtime_error);
}

TEST(HistoryErrors, AFileInThePlaceOfTheDirectory) {
  const TemporaryDirectory directory;
  testing::write_text(directory.file("run"), "x");
  EXPECT_THAT([&] { open(directory.file("run")); },
              ThrowsMessage<std::runtime_error>(HasSubstr(directory.file("run"))));
  EXPECT_THROW(open(directory.file("run/below")), std::runtime_error);
}

TEST(HistoryErrors, ADirectoryInThePlaceOfTheFile) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.file("history.sqlite"));
  EXPECT_THAT([&] { open(directory.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("history.sqlite")));
}

TEST(HistoryErrors, AFileThatIsNoDatabase) {
  const TemporaryDirectory directory;
  testing::write_text(directory.file("history.sqlite"), std::string(5000, 'x'));
  EXPECT_THAT([&] { open(directory.path()); },
              ThrowsMessage<std::runtime_error>(
                  AllOf(HasSubstr("not a database"), HasSubstr("another run directory"))));
  EXPECT_THAT([&] { read_history(directory.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("not a database")));
}

TEST(HistoryErrors, ADatabaseOfAnotherProgram) {
  const TemporaryDirectory directory;
  Database(directory.file("history.sqlite"), Database::Mode::kReadWriteCreate)
      .execute("CREATE TABLE theirs (x)");
  EXPECT_THAT([&] { open(directory.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("is not a headscope history")));
}

TEST(HistoryErrors, ANewerSchema) {
  const TemporaryDirectory directory;
  make_history(directory.path(), "PRAGMA user_version = 99");
  const auto complains = ThrowsMessage<std::runtime_error>(
      AllOf(HasSubstr("schema version 99"), HasSubstr("knows version 2")));
  EXPECT_THAT([&] { open(directory.path()); }, complains);
  EXPECT_THAT([&] { read_history(directory.path()); }, complains);
}

TEST(HistoryErrors, NoHistoryToRead) {
  const TemporaryDirectory directory;
  EXPECT_THAT([&] { read_history(directory.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("there is no run history at")));
}

TEST(HistoryErrors, BrokenRowsNameTheirSnapshot) {
  for (const char* change :
       {"UPDATE snapshot SET figures = x'00'", "UPDATE snapshot SET circuits = '{'",
        "UPDATE snapshot SET health = '{}'", "UPDATE snapshot SET patterns = '[1]'",
        "UPDATE event SET detail = 'null'",
        "UPDATE ablation SET detail = replace(detail, 'verified', 'vexed')"}) {
    const TemporaryDirectory directory;
    make_history(directory.path(), change);
    EXPECT_THAT([&] { read_history(directory.path()); },
                ThrowsMessage<std::runtime_error>(HasSubstr("snapshot 1 is broken")))
        << change;
  }
}

TEST(HistoryErrors, PublishingAfterCloseIsAnError) {
  const TemporaryDirectory directory;
  const auto history = open(directory.path());
  history->close();
  EXPECT_THROW(history->publish(shared(sample_snapshot())), std::runtime_error);
}

// Both journal modes write in their own way.
class FullDiskHistory : public ::testing::TestWithParam<bool> {};

TEST_P(FullDiskHistory, WritesAgainOnceThereIsSpaceAndLosesNothing) {
  const TemporaryDirectory directory;
  const auto history = open_history(
      {.run_dir = directory.path(), .facts = {}, .log = {}, .assume_network = GetParam()});
  history->publish(shared(sample_snapshot(10)));
  {
    const FullDisk full;
    const auto complains = ThrowsMessage<std::runtime_error>(AllOf(
        HasSubstr("cannot write the run history"), HasSubstr(directory.file("history.sqlite"))));
    EXPECT_THAT([&] { history->publish(shared(sample_snapshot(20))); }, complains);
    EXPECT_THAT([&] { history->publish(shared(sample_snapshot(30))); }, complains);
  }
  history->publish(shared(sample_snapshot(40)));
  std::vector<int64_t> steps;
  for (const auto& snapshot : read_history(directory.path()).snapshots) {
    steps.push_back(snapshot->step);
  }
  EXPECT_THAT(steps, ::testing::ElementsAre(10, 20, 30, 40));
}

TEST_P(FullDiskHistory, KeepsABoundedNumberOfSnapshots) {
  const TemporaryDirectory directory;
  const auto history = open_history(
      {.run_dir = directory.path(), .facts = {}, .log = {}, .assume_network = GetParam()});
  std::string last;
  {
    const FullDisk full;
    for (int step = 0; step < 70; ++step) {
      try {
        history->publish(shared(sample_snapshot(step)));
      } catch (const std::runtime_error& error) {
        last = error.what();
      }
    }
  }
  EXPECT_THAT(last, HasSubstr("64 snapshots wait for the next try, 1 lost"));
  history->publish(shared(sample_snapshot(70)));
  EXPECT_EQ(read_history(directory.path()).snapshots.size(), 65u);
}

INSTANTIATE_TEST_SUITE_P(JournalModes, FullDiskHistory, ::testing::Bool());

}  // namespace
}  // namespace headscope
