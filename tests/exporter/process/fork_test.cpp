#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "headscope/built_in_sinks.h"
#include "headscope/process.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/metrics_server.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/sanitizers.h"
#include "tests/support/system/child_process.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope {
namespace {

using testing::ChildProcess;
using testing::Connection;
using testing::http;
using testing::NumberPipe;
using testing::port_of;
using testing::port_to_come_back_to;
using testing::sample_snapshot;
using testing::shared;
using testing::TemporaryDirectory;

constexpr int kAnyPort = 0;
constexpr auto kRetry = std::chrono::milliseconds(1);

std::shared_ptr<MetricsServer> start(int port, const std::string& endpoint_file = "") {
  ServerOptions options;
  options.port = port;
  options.ports_to_try = 1;
  options.endpoint_file = endpoint_file;
  return start_metrics_server(options);
}

/// Everything that an exporter has, in one process.
struct Exporter {
  explicit Exporter(const std::string& run_dir)
      : server(start(kAnyPort, run_dir + "/endpoint")),
        history(open_history({.run_dir = run_dir, .facts = {}, .log = {}})),
        progress(make_progress_line({.file_descriptor = null})) {}
  ~Exporter() { close(null); }

  std::vector<std::shared_ptr<Sink>> sinks() const { return {server, history, progress}; }
  void publish(int64_t step) const {
    for (const auto& sink : sinks()) sink->publish(shared(sample_snapshot(step)));
  }
  /// What a forked child may do with what it inherited, and what its exit does.
  bool use_up() {
    publish(-1);
    for (const auto& sink : sinks()) sink->close();
    server.reset();
    history.reset();
    progress.reset();
    return true;
  }

  int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
  std::shared_ptr<MetricsServer> server;
  std::shared_ptr<Sink> history;
  std::shared_ptr<Sink> progress;
};

TEST(Fork, CallbacksRunInTheChildOnlyAndWhileRegistered) {
  std::atomic<int> calls = 0;
  {
    const ForkRegistration first = on_fork_child([&] { ++calls; });
    const ForkRegistration second = on_fork_child([&] { ++calls; });
    EXPECT_EQ(ChildProcess([&] { return calls == 2; }).wait(), 0);
  }
  EXPECT_EQ(ChildProcess([&] { return calls == 0; }).wait(), 0);
  EXPECT_EQ(calls, 0);
}

TEST(Fork, WaitsWhileForksAreHeld) {
  const ForkRegistration any = on_fork_child([] {});
  std::atomic<bool> held = false;
  std::atomic<bool> done = false;
  std::thread holder([&] {
    const auto hold = hold_forks();
    held = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    done = true;
  });
  while (!held) std::this_thread::sleep_for(kRetry);
  EXPECT_EQ(ChildProcess([&] { return done.load(); }).wait(), 0);
  holder.join();
}

TEST(Fork, ManyTimesAmidScrapesAndPublishing) {
  if (testing::kAddressSanitizer) GTEST_SKIP() << "its allocator's locks are not released in forks";
  const TemporaryDirectory directory;
  Exporter exporter(directory.path());
  const int port = port_of(exporter.server->url());
  std::atomic<bool> stop = false;
  std::atomic<int> scraped = 0;
  std::atomic<int> failed = 0;
  std::atomic<int64_t> published = 0;
  std::thread scraper([&] {
    while (!stop) (http(port, "/metrics").status == 200 ? scraped : failed) += 1;
  });
  std::thread publisher([&] {
    while (!stop) exporter.publish(published++);
  });
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(ChildProcess([&] { return exporter.use_up(); }).wait(), 0) << "child " << i;
    std::this_thread::sleep_for(std::chrono::microseconds(137 * i));
  }
  stop = true;
  scraper.join();
  publisher.join();
  EXPECT_GT(scraped, 0);
  EXPECT_EQ(failed, 0);
  EXPECT_EQ(http(port, "/metrics").status, 200);
  EXPECT_EQ(testing::read_text(directory.file("endpoint")), exporter.server->url() + "\n");
  exporter.history->close();
  const auto snapshots = read_history(directory.path()).snapshots;
  ASSERT_EQ(static_cast<int64_t>(snapshots.size()), published);
  EXPECT_EQ(snapshots.front()->step, 0);  // no child wrote its -1
}

TEST(Fork, AmidStartsAndStopsNoPortIsKept) {
  const int port = port_to_come_back_to();
  std::atomic<bool> stop = false;
  std::thread restarting([&] {
    while (!stop) {
      try {
        start(port)->close();
      } catch (const std::runtime_error& error) {
        ADD_FAILURE() << error.what();
        return;
      }
    }
  });
  std::vector<ChildProcess> children;
  for (int i = 0; i < 50; ++i) {
    children.emplace_back([] {
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return true;
    });
    std::this_thread::sleep_for(std::chrono::microseconds(997 * (i % 10)));
  }
  stop = true;
  restarting.join();
  EXPECT_EQ(http(port_of(start(port)->url()), "/metrics").status, 200);
}

// Two pipes and two generations: the test starts a parent, which forks a child that stays.
TEST(Fork, AChildThatLivesOnDoesNotKeepThePort) {
  NumberPipe ports;
  NumberPipe children;
  ChildProcess parent([&] {
    const auto server = start(port_to_come_back_to());
    const pid_t child = fork();
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(60));
      _exit(0);
    }
    ports.send(port_of(server->url()));
    children.send(child);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return true;
  });
  const int port = static_cast<int>(ports.receive());
  const auto child = static_cast<pid_t>(children.receive());
  // A client in the middle of a request hears at once that nobody will answer.
  const Connection half(port);
  half.send("GET /metrics HT");
  EXPECT_EQ(http(port, "/metrics").status, 200);
  parent.kill();
  const auto killed = std::chrono::steady_clock::now();
  half.receive_all(20);
  const auto server = start(port);
  EXPECT_EQ(http(port, "/metrics").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(2));
  EXPECT_EQ(kill(child, SIGKILL), 0) << "the child lived all the time";
}

TEST(Fork, AConnectionThatIsOpenDuringTheForkDiesWithTheParent) {
  NumberPipe ports;
  NumberPipe children;
  NumberPipe connected;
  ChildProcess parent([&] {
    const auto server = start(port_to_come_back_to());
    ports.send(port_of(server->url()));
    connected.receive();
    const pid_t child = fork();
    if (child == 0) {
      std::this_thread::sleep_for(std::chrono::seconds(60));
      _exit(0);
    }
    children.send(child);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return true;
  });
  const int port = static_cast<int>(ports.receive());
  const Connection half(port);
  half.send("GET /metrics HT");
  EXPECT_EQ(http(port, "/metrics").status, 200);  // so `half` was accepted before
  connected.send(1);
  const auto child = static_cast<pid_t>(children.receive());
  parent.kill();
  const auto killed = std::chrono::steady_clock::now();
  half.receive_all(10);
  EXPECT_LT(std::chrono::steady_clock::now() - killed, std::chrono::seconds(5));
  kill(child, SIGKILL);
}

TEST(Fork, AProgramThatTheHostStartedDoesNotKeepThePort) {
  NumberPipe ports;
  NumberPipe children;
  ChildProcess parent([&] {
    const auto server = start(port_to_come_back_to());
    const pid_t child = vfork();  // runs no callbacks
    if (child == 0) {
      execlp("sleep", "sleep", "60", nullptr);
      _exit(1);
    }
    ports.send(port_of(server->url()));
    children.send(child);
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return true;
  });
  const int port = static_cast<int>(ports.receive());
  const auto child = static_cast<pid_t>(children.receive());
  parent.kill();
  EXPECT_EQ(http(port_of(start(port)->url()), "/metrics").status, 200);
  kill(child, SIGKILL);
}

// jupp0r/prometheus-cpp#565: attached before daemon(), and dead after it.
TEST(Fork, ADaemonServesAgainOnceItStartsItsOwnServer) {
  if (testing::kThreadSanitizer)
    GTEST_SKIP() << "it ends processes that start threads after fork()";
  const TemporaryDirectory directory;
  const std::string endpoint = directory.file("endpoint");
  NumberPipe ports;
  NumberPipe daemons;
  ChildProcess parent([&] {
    auto before = start(port_to_come_back_to(), endpoint);
    const int port = port_of(before->url());
    const pid_t first = getpid();
    const pid_t daemon = fork();
    if (daemon != 0) {
      daemons.send(daemon);
      return true;
    }
    while (getppid() == first) std::this_thread::sleep_for(kRetry);
    const auto after = start(port, endpoint);
    before.reset();  // must not take the endpoint file of `after` away
    after->publish(shared(sample_snapshot(7)));
    ports.send(port_of(after->url()));
    std::this_thread::sleep_for(std::chrono::seconds(60));
    _exit(0);
  });
  const auto daemon = static_cast<pid_t>(daemons.receive());
  EXPECT_EQ(parent.wait(), 0);
  const int port = static_cast<int>(ports.receive());
  EXPECT_THAT(http(port, "/metrics").body, ::testing::HasSubstr("\nheadscope_step 7\n"));
  EXPECT_EQ(testing::read_text(endpoint), "http://127.0.0.1:" + std::to_string(port) + "\n");
  kill(daemon, SIGKILL);
}

}  // namespace
}  // namespace headscope
