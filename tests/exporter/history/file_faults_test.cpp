#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "csrc/exporter/history/sqlite.h"
#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/child_process.h"
#include "tests/support/system/full_disk.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope {
namespace {

namespace fs = std::filesystem;
using exporter::Database;
using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::ElementsAre;
using testing::FullDisk;
using ::testing::HasSubstr;
using testing::http;
using testing::port_of;
using testing::sample_snapshot;
using testing::shared;
using testing::TemporaryDirectory;
using ::testing::ThrowsMessage;

std::vector<int64_t> steps_of(const std::string& run_dir) {
  std::vector<int64_t> steps;
  for (const auto& snapshot : read_history(run_dir).snapshots) steps.push_back(snapshot->step);
  return steps;
}

/// A server with an endpoint file, and what it warned of.
struct Server {
  explicit Server(const std::string& endpoint_file) {
    ServerOptions options;
    options.port = 0;
    options.endpoint_file = endpoint_file;
    options.log = [this](LogLevel level, const std::string& line) {
      if (level == LogLevel::kWarning) warnings += line + "\n";
    };
    server = start_metrics_server(options);
  }
  int scrape() const { return http(port_of(server->url()), "/metrics").status; }

  std::string warnings;
  std::shared_ptr<MetricsServer> server;
};

/// Root may write where the mode forbids it, so a plain user does.
template <typename Body>
int as_plain_user(const Body& body) {
  return ChildProcess([&] {
           constexpr uid_t kNobody = 65534;
           return (geteuid() != 0 || setuid(kNobody) == 0) && body();
         })
      .wait();
}

// Both journal modes write in their own way.
class HistoryFaults : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<Sink> open(const std::string& run_dir) {
    return open_history({.run_dir = run_dir,
                         .facts = {{"run_id", "a"}},
                         .log =
                             [this](LogLevel level, const std::string& line) {
                               if (level == LogLevel::kWarning) warnings += line + "\n";
                             },
                         .assume_network = GetParam()});
  }
  std::string warnings;
};

TEST_P(HistoryFaults, ARunDirectoryThatWasRemovedIsMadeAgain) {
  const TemporaryDirectory directory;
  const std::string run_dir = directory.file("run");
  const auto history = open(run_dir);
  history->publish(shared(sample_snapshot(10)));
  fs::remove_all(run_dir);
  history->publish(shared(sample_snapshot(20)));
  history->publish(shared(sample_snapshot(30)));
  EXPECT_THAT(steps_of(run_dir), ElementsAre(20, 30));
  EXPECT_EQ(read_history(run_dir).facts.at("run_id"), "a");
  EXPECT_THAT(warnings, HasSubstr(run_dir + "/history.sqlite was removed"));
}

TEST_P(HistoryFaults, SnapshotsWaitWhileTheRunDirectoryCannotBeMadeAgain) {
  const TemporaryDirectory directory;
  const std::string run_dir = directory.file("run");
  const auto history = open(run_dir);
  fs::remove_all(run_dir);
  testing::write_text(run_dir, "a file in the way");
  const auto complains = ThrowsMessage<std::runtime_error>(
      AllOf(HasSubstr("cannot write the run history"), HasSubstr(run_dir)));
  EXPECT_THAT([&] { history->publish(shared(sample_snapshot(10))); }, complains);
  EXPECT_THAT([&] { history->publish(shared(sample_snapshot(20))); }, complains);
  fs::remove(run_dir);
  history->publish(shared(sample_snapshot(30)));
  EXPECT_THAT(steps_of(run_dir), ElementsAre(10, 20, 30));
}

TEST_P(HistoryFaults, AHistoryFileThatWasRemovedIsMadeAgain) {
  const TemporaryDirectory directory;
  const auto history = open(directory.path());
  history->publish(shared(sample_snapshot(10)));
  fs::remove(directory.file("history.sqlite"));
  history->publish(shared(sample_snapshot(20)));
  history->close();
  EXPECT_THAT(steps_of(directory.path()), ElementsAre(20));
}

TEST_P(HistoryFaults, ClosingBringsNothingBackThatWasRemoved) {
  const TemporaryDirectory directory;
  const auto history = open(directory.file("run"));
  history->publish(shared(sample_snapshot(10)));
  fs::remove_all(directory.file("run"));
  history->close();
  EXPECT_FALSE(fs::exists(directory.file("run")));
}

TEST_P(HistoryFaults, ADirectoryThatBecameReadOnlyCostsNothingOnceItIsBack) {
  const TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::all);
  const std::string run_dir = directory.file("run");
  const auto body = [&] {
    const auto history = open(run_dir);
    history->publish(shared(sample_snapshot(10)));
    fs::remove(run_dir + "/history.sqlite");
    fs::permissions(run_dir, fs::perms::owner_read | fs::perms::owner_exec);
    int failures = 0;
    for (const int step : {20, 30}) {
      try {
        history->publish(shared(sample_snapshot(step)));
      } catch (const std::runtime_error&) {
        ++failures;
      }
    }
    fs::permissions(run_dir, fs::perms::owner_all);
    history->publish(shared(sample_snapshot(40)));
    return failures == 2 && steps_of(run_dir) == std::vector<int64_t>{20, 30, 40};
  };
  EXPECT_EQ(as_plain_user(body), 0);
}

TEST_P(HistoryFaults, AFullDiskLeavesMetricsAndLosesNothing) {
  const TemporaryDirectory directory;
  const Server server(directory.file("endpoint"));
  const auto history = open(directory.path());
  {
    const FullDisk full;
    for (int step = 0; step < 5; ++step) {
      EXPECT_THROW(history->publish(shared(sample_snapshot(step))), std::runtime_error);
      EXPECT_EQ(server.scrape(), 200);
    }
  }
  history->close();  // writes what waits
  EXPECT_THAT(steps_of(directory.path()), ElementsAre(0, 1, 2, 3, 4));
}

// vllm-project/vllm#49983.
TEST_P(HistoryFaults, ALockedHistoryLeavesMetricsAndLosesNothing) {
  const TemporaryDirectory directory;
  const Server server("");
  const auto history = open(directory.path());
  history->publish(shared(sample_snapshot(10)));
  {
    Database other(directory.file("history.sqlite"), Database::Mode::kReadWriteCreate);
    other.execute("BEGIN EXCLUSIVE");
    std::thread blocked([&] {
      EXPECT_THAT([&] { history->publish(shared(sample_snapshot(20))); },
                  ThrowsMessage<std::runtime_error>(HasSubstr("database is locked")));
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(server.scrape(), 200);
    blocked.join();
    other.execute("COMMIT");
  }
  history->publish(shared(sample_snapshot(30)));
  EXPECT_THAT(steps_of(directory.path()), ElementsAre(10, 20, 30));
}

INSTANTIATE_TEST_SUITE_P(JournalModes, HistoryFaults, ::testing::Bool());

TEST(FileFaults, ADirectoryThatMayNotBeWrittenIsAClearError) {
  const TemporaryDirectory directory;
  fs::permissions(directory.path(), fs::perms::others_read | fs::perms::others_exec |
                                        fs::perms::owner_read | fs::perms::owner_exec);
  const auto body = [&] {
    const Server server(directory.file("endpoint"));
    bool refused = false;
    try {
      static_cast<void>(open_history({.run_dir = directory.path(), .facts = {}, .log = {}}));
    } catch (const std::runtime_error& error) {
      refused = std::string(error.what()).find(directory.path()) != std::string::npos;
    }
    return refused && server.scrape() == 200 &&
           server.warnings.find("endpoint") != std::string::npos;
  };
  EXPECT_EQ(as_plain_user(body), 0);
}

TEST(FileFaults, APipeInThePlaceOfTheHistoryIsAClearError) {
  const TemporaryDirectory directory;
  ASSERT_EQ(mkfifo(directory.file("history.sqlite").c_str(), 0600), 0);
  const auto complains = ThrowsMessage<std::runtime_error>(HasSubstr("is not a file"));
  EXPECT_THAT(
      [&] {
        static_cast<void>(open_history({.run_dir = directory.path(), .facts = {}, .log = {}}));
      },
      complains);
  EXPECT_THAT([&] { read_history(directory.path()); }, complains);
}

TEST(FileFaults, AFullDiskCostsTheEndpointFileOnly) {
  const TemporaryDirectory directory;
  const std::string endpoint = directory.file("endpoint");
  testing::write_text(endpoint, "http://127.0.0.1:1\n");
  {
    const FullDisk full(0);
    const Server server(endpoint);
    EXPECT_THAT(server.warnings, HasSubstr(endpoint));
    EXPECT_EQ(server.scrape(), 200);
  }
  EXPECT_EQ(testing::read_text(endpoint), "http://127.0.0.1:1\n");
  EXPECT_EQ(std::distance(fs::directory_iterator(directory.path()), {}), 1);
  const Server server(endpoint);
  EXPECT_EQ(testing::read_text(endpoint), server.server->url() + "\n");
}

TEST(FileFaults, ADirectoryInThePlaceOfTheEndpointFileIsLeftAlone) {
  const TemporaryDirectory directory;
  fs::create_directory(directory.file("endpoint"));
  const Server server(directory.file("endpoint"));
  EXPECT_THAT(server.warnings, HasSubstr("endpoint"));
  EXPECT_EQ(server.scrape(), 200);
  server.server->close();
  EXPECT_TRUE(fs::is_directory(directory.file("endpoint")));
}

TEST(FileFaults, ClosingWaitsForNoPipeInThePlaceOfTheEndpointFile) {
  const TemporaryDirectory directory;
  const auto body = [&] {
    const Server server(directory.file("endpoint"));
    fs::remove(directory.file("endpoint"));
    mkfifo(directory.file("endpoint").c_str(), 0600);
    server.server->close();
    return fs::exists(directory.file("endpoint"));
  };
  EXPECT_EQ(ChildProcess(body).wait(), 0);
}

}  // namespace
}  // namespace headscope
