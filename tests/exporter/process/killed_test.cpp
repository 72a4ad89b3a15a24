#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <random>
#include <string>
#include <thread>

#include "csrc/exporter/history/sqlite.h"
#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/metrics_server.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/long_tests.h"
#include "tests/support/system/child_process.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using exporter::Database;
using testing::ChildProcess;
using testing::http;
using testing::NumberPipe;
using testing::port_of;
using testing::sample_snapshot;
using testing::shared;
using testing::TemporaryDirectory;

TEST(Killed, AServerTakesItsPortAgainAtOnce) {
  NumberPipe ports;
  ChildProcess first([&] {
    ServerOptions options;
    options.port = testing::port_to_come_back_to();
    const auto server = start_metrics_server(options);
    ports.send(port_of(server->url()));
    for (int step = 0;; ++step) server->publish(shared(sample_snapshot(step)));
    return true;
  });
  ServerOptions options;
  options.port = static_cast<int>(ports.receive());
  options.ports_to_try = 1;
  for (int i = 0; i < 5; ++i) http(options.port, "/metrics");  // leaves connections behind
  first.kill();
  const auto killed = std::chrono::steady_clock::now();
  const auto second = start_metrics_server(options);
  EXPECT_EQ(http(options.port, "/metrics").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(1));
}

class KilledHistory : public ::testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<Sink> open(const std::string& run_dir) {
    return open_history({.run_dir = run_dir, .facts = {}, .log = {}, .assume_network = GetParam()});
  }
};

// HEADSCOPE_LONG=1: 100 kills.
TEST_P(KilledHistory, HoldsWhateverPublishReturnedFrom) {
  std::mt19937 random(11);
  const int trials = testing::run_long_tests() ? 100 : 5;
  for (int trial = 0; trial < trials; ++trial) {
    const TemporaryDirectory directory;
    NumberPipe published;
    ChildProcess writer([&] {
      const auto history = open(directory.path());
      for (int64_t step = 0;; ++step) {
        history->publish(shared(sample_snapshot(step)));
        published.send(step);
      }
      return true;
    });
    published.receive();  // it writes now
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150000));
    writer.kill();
    const int64_t last = published.last_of_ended().value_or(0);
    const auto snapshots = read_history(directory.path()).snapshots;
    ASSERT_GT(static_cast<int64_t>(snapshots.size()), last) << "trial " << trial;
    for (int64_t step = 0; step <= last; ++step) {
      ASSERT_EQ(snapshots[static_cast<size_t>(step)]->step, step) << "trial " << trial;
    }
    Database database(directory.file("history.sqlite"), Database::Mode::kReadWriteCreate);
    ASSERT_EQ(database.text_of("PRAGMA integrity_check"), "ok") << "trial " << trial;
    // The next run goes on in the same file.
    Snapshot next = sample_snapshot(last + 1000);
    next.segment = 1;
    open(directory.path())->publish(shared(next));
    ASSERT_EQ(read_history(directory.path()).snapshots.back()->step, last + 1000);
  }
}

// A transaction that has reached the file already, which only a writer can undo.
TEST_P(KilledHistory, ATransactionThatWasNotFinishedIsUndoneByTheReader) {
  const TemporaryDirectory directory;
  open(directory.path())->publish(shared(sample_snapshot(5)));
  ChildProcess writer([&] {
    Database database(directory.file("history.sqlite"), Database::Mode::kReadWriteCreate);
    database.text_of(GetParam() ? "PRAGMA journal_mode = delete" : "PRAGMA journal_mode = wal");
    database.execute(
        "PRAGMA cache_size = 2; BEGIN; UPDATE snapshot SET step = 99, figures = "
        "zeroblob(1000000)");
    raise(SIGKILL);
    return true;
  });
  EXPECT_TRUE(WIFSIGNALED(writer.wait()));
  const auto snapshots = read_history(directory.path()).snapshots;
  ASSERT_EQ(snapshots.size(), 1u);
  EXPECT_EQ(snapshots[0]->step, 5);
}

INSTANTIATE_TEST_SUITE_P(JournalModes, KilledHistory, ::testing::Bool());

}  // namespace
}  // namespace headscope
