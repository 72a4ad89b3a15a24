#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <string>
#include <thread>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/metrics_server.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/child_process.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using testing::ChildProcess;
using testing::Connection;
using testing::http;
using testing::NumberPipe;
using testing::port_of;
using testing::sample_snapshot;
using testing::shared;
using testing::start_server;
using testing::TemporaryDirectory;

/// Clients that reset their connection in the middle of a large answer.
void vanish_mid_answer(MetricsServer& server) {
  testing::SampleShape large;
  large.layers = 16;
  large.heads = 16;
  server.publish(shared(sample_snapshot(600, Source::kProbe, large)));
  for (int i = 0; i < 10; ++i) {
    Connection client(port_of(server.url()));
    client.send("GET /metrics HTTP/1.1\r\n\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
    client.reset();
  }
}

std::atomic<int> handled = 0;
std::atomic<pid_t> handler_thread = 0;
void host_handler(int) {
  ++handled;
  handler_thread = gettid();
}

// The server's library sets SIGPIPE to "ignore" for the whole process; a host may rely on another.
class Sigpipe : public ::testing::TestWithParam<void (*)(int)> {};

TEST_P(Sigpipe, StaysTheHosts) {
  const TemporaryDirectory directory;
  const auto body = [&] {
    struct sigaction hosts {};
    hosts.sa_handler = GetParam();
    hosts.sa_flags = SA_RESTART;
    sigaction(SIGPIPE, &hosts, nullptr);
    const auto is_hosts = [&] {
      struct sigaction now {};
      sigaction(SIGPIPE, nullptr, &now);
      return now.sa_handler == GetParam() && (now.sa_flags & SA_RESTART) != 0;
    };
    const auto server = start_server();
    const auto history = open_history({.run_dir = directory.path(), .facts = {}, .log = {}});
    bool same = is_hosts();
    vanish_mid_answer(*server);
    same = same && is_hosts() && http(port_of(server->url()), "/metrics").status == 200;
    server->close();
    history->close();
    return same && is_hosts() && handled == 0;
  };
  EXPECT_EQ(ChildProcess(body).wait(), 0);
}

INSTANTIATE_TEST_SUITE_P(Dispositions, Sigpipe, ::testing::Values(SIG_DFL, SIG_IGN, &host_handler));

// Signals to the process must go on reaching the host's threads, whose handlers may expect that.
TEST(Signals, OurThreadsTakeNone) {
  const auto body = [] {
    const auto server = start_server();
    http(port_of(server->url()), "/metrics");
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, nullptr);  // now only the server's threads could take it
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGPIPE, SIGRTMIN}) {
      kill(getpid(), signal);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server->close();  // starts a thread of its own
    return true;
  };
  EXPECT_EQ(ChildProcess(body).wait(), 0);
}

TEST(Signals, SigtermEndsTheHostAsItWouldWithoutUs) {
  NumberPipe ready;
  ChildProcess host([&] {
    const auto server = start_server();
    ready.send(port_of(server->url()));
    std::this_thread::sleep_for(std::chrono::seconds(60));
    return true;
  });
  http(static_cast<int>(ready.receive()), "/metrics");
  kill(host.pid(), SIGTERM);
  const int status = host.wait();
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_EQ(WTERMSIG(status), SIGTERM);
}

TEST(Signals, AHandlerOfTheHostRunsOnTheHostsThread) {
  const auto body = [] {
    std::signal(SIGTERM, host_handler);
    const auto server = start_server();
    for (int i = 0; i < 20; ++i) {
      http(port_of(server->url()), "/metrics");
      kill(getpid(), SIGTERM);
      while (handled <= i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (handler_thread != gettid()) return false;
    }
    return true;
  };
  EXPECT_EQ(ChildProcess(body).wait(), 0);
}

}  // namespace
}  // namespace headscope
