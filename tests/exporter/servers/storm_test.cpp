#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/metrics_server.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/long_tests.h"
#include "tests/support/sanitizers.h"
#include "tests/support/system/child_process.h"
#include "tests/support/system/cpu_time.h"

namespace headscope {
namespace {

using std::chrono::milliseconds;
using testing::answer_to;
using testing::ChildProcess;
using testing::Connection;
using testing::http;
using testing::HttpAnswer;
using testing::NumberPipe;
using testing::port_of;
using testing::sample_snapshot;
using testing::shared;
using testing::start_server;

/// 1,024 heads and 6 patterns: more series than a scrape shows.
std::shared_ptr<const Snapshot> large_snapshot(int64_t step) {
  testing::SampleShape shape;
  shape.layers = 32;
  shape.heads = 32;
  return shared(sample_snapshot(step, Source::kProbe, shape));
}

/// A figure of /proc/self/status in MB.
double status_mb(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return std::stod(line.substr(name.size() + 1)) / 1024;
  }
  throw std::runtime_error("no " + name);
}

/// `count` scrapes at once; true when each was complete, or refused within a second.
bool scrape_in_parallel(int port, int count) {
  std::atomic<int> bad = 0;
  std::vector<std::thread> clients;
  for (int i = 0; i < count; ++i) {
    clients.emplace_back([&] {
      const auto before = std::chrono::steady_clock::now();
      try {
        const HttpAnswer answer = http(port, "/metrics");
        const bool complete =
            answer.status == 200 &&
            answer.header("Content-Length") == std::to_string(answer.body.size()) &&
            answer.body.size() > 1000000 && answer.body.back() == '\n';
        bad += !complete;
      } catch (const std::exception&) {
        bad += std::chrono::steady_clock::now() - before > std::chrono::seconds(1);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  return bad == 0;
}

// The text that is being made, one of 2 MB for each thread that sends, and what the allocator
// keeps.
constexpr double kStormMegabytes = 160;
constexpr int kScrapes = testing::kSanitized ? 20 : 200;

TEST(Storm, TwoHundredScrapesAreAnsweredAndCostBoundedMemory) {
  const NumberPipe ports;
  ChildProcess clients(
      [&] { return scrape_in_parallel(static_cast<int>(ports.receive()), kScrapes); });
  const auto server = start_server();
  const std::shared_ptr<const Snapshot> snapshots[] = {large_snapshot(1), large_snapshot(2)};
  server->publish(snapshots[0]);
  std::ofstream("/proc/self/clear_refs") << "5\n";  // the peak starts again
  const double before = status_mb("VmRSS");
  ports.send(port_of(server->url()));
  double cpu_seconds = 0;
  int published = 0;
  std::atomic<bool> over = false;
  std::thread publisher([&] {
    for (; !over; ++published) {
      const double start = testing::thread_cpu_seconds();
      server->publish(snapshots[published % 2]);
      cpu_seconds += testing::thread_cpu_seconds() - start;
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(clients.wait(std::chrono::seconds(100)), 0);
  const std::chrono::duration<double> storm = std::chrono::steady_clock::now() - began;
  over = true;
  publisher.join();
  EXPECT_LT(cpu_seconds / published, testing::kSanitized ? 2e-2 : 2e-3);
  if (testing::kSanitized)
    GTEST_SKIP() << "answers and CPU are held; memory and rate are the sanitizer's own";
  EXPECT_LT(status_mb("VmHWM") - before, kStormMegabytes);
  // Waiting for texts, of which each takes a tenth of a second to make, it would come to few.
  EXPECT_GT(published, storm.count() / 0.03);
}

// The same without a stopwatch: a scrape is stuck for as long as publish() has not returned.
TEST(Storm, PublishingDoesNotWaitForAScrape) {
  std::mutex mutex;
  std::condition_variable changed;
  bool inside = false;
  bool published = false;
  ServerOptions options;
  options.health = [&] {
    std::unique_lock lock(mutex);
    inside = true;
    changed.notify_all();
    changed.wait(lock, [&] { return published; });
    return Health{};
  };
  const auto server = start_server(options);
  std::thread scraper([&] { EXPECT_EQ(http(port_of(server->url()), "/metrics").status, 200); });
  {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return inside; });
  }
  server->publish(shared(sample_snapshot()));
  {
    const std::lock_guard lock(mutex);
    published = true;
  }
  changed.notify_all();
  scraper.join();
}

// HEADSCOPE_LONG=1: with the timeout as it is by default.
TEST(Storm, FiftyDrippingClientsDelayAScrapeByWhatIsDocumented) {
  ServerOptions options;
  if (!testing::run_long_tests()) options.request_timeout_ms = 500;
  const auto server = start_server(options);
  const int port = port_of(server->url());
  constexpr int kSlow = 50;
  std::vector<Connection> slow;
  for (int i = 0; i < kSlow; ++i) {
    slow.emplace_back(port);
    slow.back().send("GET /metrics HTTP/1.1\r\nX: ");
  }
  std::atomic<bool> stop = false;
  std::thread dripping([&] {
    while (!stop) {
      for (const Connection& client : slow) client.send("x");
      std::this_thread::sleep_for(milliseconds(100));
    }
  });
  std::this_thread::sleep_for(milliseconds(100));
  const HttpAnswer answer = http(port, "/metrics");
  stop = true;
  dripping.join();
  const int rounds = (kSlow + options.threads - 1) / options.threads;
  EXPECT_EQ(answer.status, 200);
  EXPECT_LT(answer.seconds, 1e-3 * rounds * options.request_timeout_ms + 2);
  EXPECT_LT(rounds * ServerOptions{}.request_timeout_ms, 10000) << "Prometheus' own patience";
}

// HEADSCOPE_LONG=1: 100,000 of them.
TEST(Storm, RandomUrlsMakeNoSeries) {
  const auto server = start_server();
  const int port = port_of(server->url());
  server->publish(shared(sample_snapshot()));
  const auto series = [&] {
    const std::string text = http(port, "/metrics").body;
    return std::count(text.begin(), text.end(), '\n');
  };
  const auto before = series();
  std::mt19937 random(3);
  const int urls = !testing::run_long_tests() ? 1000 : testing::kSanitized ? 20000 : 100000;
  for (int i = 0; i < urls; ++i) {
    ASSERT_EQ(http(port, "/" + std::to_string(random()) + "?q=" + std::to_string(i)).status, 404);
  }
  EXPECT_EQ(series(), before);
}

int status_of(int port, const std::string& bytes) { return answer_to(port, bytes).status; }

TEST(Storm, MalformedRequestsGetTheirCodes) {
  ServerOptions options;
  options.request_timeout_ms = 200;  // a body that is announced is waited for
  const auto server = start_server(options);
  const int port = port_of(server->url());
  const std::string end = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  EXPECT_EQ(status_of(port, "\x16\x03\x01\xFF\xFE\r\n\r\n"), 400);
  EXPECT_EQ(status_of(port, std::string("GET /me\0trics HTTP/1.1\r\n\r\n", 26)), 400);
  EXPECT_EQ(status_of(port, std::string("\0\xFF\xFE\r\n\r\n", 7)), 400);
  EXPECT_EQ(status_of(port, std::string(70000, 'A') + "\r\n\r\n"), 400);
  EXPECT_EQ(status_of(port, "GET /" + std::string(70000, 'x') + end), 400);
  EXPECT_EQ(status_of(port, "GET /metrics HTTP/1.1\r\nContent-Length: -5\r\n\r\n"), 411);
  EXPECT_EQ(status_of(port, "GET /metrics HTTP/9.9\r\n\r\n"), 505);
  EXPECT_EQ(status_of(port, "GET /metrics HTTP/1.1\r\nX: " + std::string(70000, 'x') + end), 400);
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "X: y\r\n";
  EXPECT_EQ(status_of(port, "GET /metrics HTTP/1.1\r\n" + many + "\r\n"), 200);  // not kept
  EXPECT_EQ(status_of(port, "POST /metrics HTTP/1.1\r\nContent-Length: 9000000000\r\n\r\n"), 405);
  const std::string body = "Content-Length: 90000000\r\n\r\n" + std::string(1 << 20, 'x');
  EXPECT_EQ(status_of(port, "GET /metrics HTTP/1.1\r\n" + body), 200);  // not read
  EXPECT_EQ(status_of(port, "GET /../metrics" + end), 404);
  EXPECT_EQ(status_of(port, "GET /%2e%2e/%2e%2e/etc/passwd" + end), 404);
  EXPECT_EQ(status_of(port, "GET /metrics" + end), 200);
}

// HEADSCOPE_LONG=1: 5,000 of them.
TEST(Storm, RandomBytesNeverStopIt) {
  const auto server = start_server();
  const int port = port_of(server->url());
  std::mt19937 random(5);
  const int trials = testing::run_long_tests() ? 5000 : 200;
  for (int i = 0; i < trials; ++i) {
    std::string bytes = i % 2 == 0 ? "GET /metrics HTTP/1.1\r\n" : "";
    for (size_t n = random() % 600; n > 0; --n) bytes += static_cast<char>(random());
    const int status = status_of(port, bytes + "\r\n\r\n");
    ASSERT_TRUE(status == 0 || status == 200 || (status >= 400 && status < 600)) << status;
  }
  EXPECT_EQ(http(port, "/metrics").status, 200);
}

// Eight ranks of one machine with one configuration.
TEST(Storm, EightProcessesWithOnePortAllServe) {
  const int taken =
      port_of(start_server()->url());  // free again, and likely with free ones after it
  std::vector<std::unique_ptr<NumberPipe>> ports;
  std::vector<ChildProcess> ranks;
  const NumberPipe go;
  for (int i = 0; i < 8; ++i) {
    ports.push_back(std::make_unique<NumberPipe>());
    ranks.emplace_back([&] {
      ServerOptions options;
      options.port = taken;
      options.facts = {{"rank", std::to_string(i)}};
      go.receive();
      const auto server = start_metrics_server(options);
      ports.back()->send(port_of(server->url()));
      std::this_thread::sleep_for(std::chrono::seconds(60));
      return true;
    });
  }
  for (int i = 0; i < 8; ++i) go.send(i);
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::string rank = "rank=\"" + std::to_string(i) + "\"";
    const auto port = static_cast<int>(ports[i]->receive());
    EXPECT_THAT(http(port, "/metrics").body, ::testing::HasSubstr(rank)) << port;
  }
}

}  // namespace
}  // namespace headscope
