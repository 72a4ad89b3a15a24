#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/metrics_server.h"
#include "tests/support/exporter/promtool.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope {
namespace {

using ::testing::AllOf;
using testing::answer_to;
using testing::Connection;
using ::testing::Contains;
using ::testing::HasSubstr;
using testing::http;
using testing::HttpAnswer;
using ::testing::Not;
using testing::port_of;
using testing::sample_snapshot;
using testing::shared;
using testing::start_server;
using ::testing::ThrowsMessage;

/// What the server logs, by level.
struct Log {
  std::mutex mutex;
  std::string warnings;

  LogFunction function() {
    return [this](LogLevel level, const std::string& line) {
      const std::lock_guard lock(mutex);
      if (level == LogLevel::kWarning) warnings += line + "\n";
    };
  }
};

TEST(Server, ServesTheNewestSnapshot) {
  const auto server = start_server();
  const int port = port_of(server->url());
  EXPECT_THAT(http(port, "/metrics").body, Not(HasSubstr("headscope_step")));
  server->publish(shared(sample_snapshot(600)));
  server->publish(shared(sample_snapshot(610)));
  const HttpAnswer answer = http(port, "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_THAT(answer.body, HasSubstr("\nheadscope_step 610\n"));
}

TEST(Server, ServesWhatPromtoolAccepts) {
  HEADSCOPE_NEED_PROMTOOL();
  ServerOptions options;
  options.facts = {{"run_id", "x"}};
  const auto server = start_server(options);
  server->publish(shared(sample_snapshot(590, Source::kTrain)));
  server->publish(shared(sample_snapshot(600)));
  EXPECT_EQ(testing::promtool_complaints(http(port_of(server->url()), "/metrics").body), "");
}

TEST(Server, ContentTypeNamesTheFormat) {
  const auto server = start_server();
  EXPECT_EQ(http(port_of(server->url()), "/metrics").header("Content-Type"),
            "text/plain; version=0.0.4; charset=utf-8");
}

TEST(Server, HeadGivesTheLengthOnly) {
  const auto server = start_server();
  const HttpAnswer get = http(port_of(server->url()), "/metrics");
  const HttpAnswer head = http(port_of(server->url()), "/metrics", "HEAD");
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.header("Content-Length"), std::to_string(get.body.size()));
  EXPECT_EQ(head.body, "");
}

TEST(Server, HealthIsReadAtEveryScrape) {
  std::atomic<int> reads = 0;
  ServerOptions options;
  options.health = [&] {
    Health health;
    health.taps = static_cast<uint64_t>(++reads);
    return health;
  };
  const auto server = start_server(options);
  EXPECT_THAT(http(port_of(server->url()), "/metrics").body, HasSubstr("headscope_taps_total 1\n"));
  EXPECT_THAT(http(port_of(server->url()), "/metrics").body, HasSubstr("headscope_taps_total 2\n"));
}

TEST(Server, AFailingHealthFunctionIsAServerError) {
  ServerOptions options;
  options.health = []() -> Health { throw std::runtime_error("no"); };
  const auto server = start_server(options);
  EXPECT_EQ(http(port_of(server->url()), "/metrics").status, 500);
  EXPECT_EQ(http(port_of(server->url()), "/-/healthy").status, 200);
}

TEST(Server, OtherPathsAreNotFound) {
  const auto server = start_server();
  for (const char* path : {"/metricsX", "/METRICS", "/metrics/", "/x/../metrics", "//metrics",
                           "/..%2fetc/passwd", "/%2e%2e/etc/passwd", "/favicon.ico"}) {
    const int status = http(port_of(server->url()), path).status;
    EXPECT_TRUE(status == 404 || status == 400) << path << " gave " << status;
  }
}

TEST(Server, AQueryIsIgnored) {
  const auto server = start_server();
  EXPECT_EQ(http(port_of(server->url()), "/metrics?name[]=x").status, 200);
}

TEST(Server, OtherMethodsAreNotAllowed) {
  const auto server = start_server();
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS"}) {
    const HttpAnswer answer = http(port_of(server->url()), "/metrics", method);
    EXPECT_EQ(answer.status, 405) << method;
    EXPECT_EQ(answer.header("Allow"), "GET, HEAD") << method;
  }
}

TEST(Server, AMalformedRequestGetsAPlainAnswer) {
  const auto server = start_server();
  const HttpAnswer answer = answer_to(port_of(server->url()), "<script>\r\n\r\n");
  EXPECT_EQ(answer.status, 400);
  EXPECT_EQ(answer.header("X-Content-Type-Options"), "nosniff");
  EXPECT_THAT(answer.head, Not(HasSubstr("script")));
  EXPECT_EQ(answer.body, "Bad Request\n");
}

TEST(Server, ATakenPortMeansTheNextOne) {
  const auto first = start_server();
  const int taken = port_of(first->url());
  Log log;
  ServerOptions options;
  options.port = taken;
  options.log = log.function();
  const auto second = start_metrics_server(options);
  EXPECT_GT(port_of(second->url()), taken);
  EXPECT_THAT(log.warnings, AllOf(HasSubstr("port " + std::to_string(taken)),
                                  HasSubstr("port " + std::to_string(port_of(second->url())))));
  EXPECT_EQ(http(port_of(second->url()), "/metrics").status, 200);
}

TEST(Server, NoFreePortIsAClearError) {
  const auto first = start_server();
  ServerOptions options;
  options.port = port_of(first->url());
  options.ports_to_try = 1;
  EXPECT_THAT([&] { static_cast<void>(start_metrics_server(options)); },
              ThrowsMessage<std::runtime_error>(
                  AllOf(HasSubstr(std::to_string(options.port)), HasSubstr("is taken"))));
}

TEST(Server, LocalhostIsTheLoopback) {
  ServerOptions options;
  options.host = "localhost";
  EXPECT_THAT(start_server(options)->url(), HasSubstr("http://127.0.0.1:"));
}

TEST(Server, ABadHostIsAClearError) {
  for (const char* host : {"", "::1", "no.such.host", "127.0.0.1\n", "1.2.3"}) {
    ServerOptions options;
    options.host = host;
    EXPECT_THAT([&] { start_server(options); },
                ThrowsMessage<std::runtime_error>(HasSubstr("is not an IPv4 address")))
        << host;
  }
}

TEST(Server, AnAddressOfAnotherMachineIsAClearError) {
  ServerOptions options;
  options.host = "192.0.2.1";
  EXPECT_THAT([&] { start_server(options); },
              ThrowsMessage<std::runtime_error>(HasSubstr("192.0.2.1")));
}

TEST(Server, BadNumbersAreClearErrors) {
  const auto complaint = [](auto change) -> std::string {
    ServerOptions options;
    change(options);
    try {
      static_cast<void>(start_metrics_server(options));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(complaint([](ServerOptions& o) { o.port = 70000; }), HasSubstr("port is 70000"));
  EXPECT_THAT(complaint([](ServerOptions& o) { o.threads = 0; }), HasSubstr("threads is 0"));
  EXPECT_THAT(complaint([](ServerOptions& o) { o.ports_to_try = 0; }),
              HasSubstr("ports_to_try is 0"));
  EXPECT_THAT(complaint([](ServerOptions& o) { o.request_timeout_ms = 0; }),
              HasSubstr("request_timeout_ms is 0"));
}

TEST(Server, PublishesItsAddressWhileItRuns) {
  const testing::TemporaryDirectory directory;
  ServerOptions options;
  options.endpoint_file = directory.file("endpoint");
  const auto server = start_server(options);
  EXPECT_EQ(testing::read_text(options.endpoint_file), server->url() + "\n");
  server->close();
  EXPECT_FALSE(std::filesystem::exists(options.endpoint_file));
}

TEST(Server, LeavesTheAddressOfAnotherServer) {
  const testing::TemporaryDirectory directory;
  ServerOptions options;
  options.endpoint_file = directory.file("endpoint");
  const auto first = start_server(options);
  const auto second = start_server(options);
  first->close();
  EXPECT_EQ(testing::read_text(options.endpoint_file), second->url() + "\n");
}

TEST(Server, AnEndpointFileThatCannotBeWrittenIsSaidAndCostsNoMetrics) {
  ServerOptions options;
  options.endpoint_file = "/nonexistent/endpoint";
  std::vector<std::string> log;
  options.log = [&log](LogLevel, const std::string& line) { log.push_back(line); };
  const auto server = start_server(options);
  EXPECT_EQ(http(port_of(server->url()), "/metrics").status, 200);
  EXPECT_THAT(log, Contains(HasSubstr("/nonexistent/endpoint")));
}

TEST(Server, StopsServingWhenClosed) {
  const auto server = start_server();
  const int port = port_of(server->url());
  EXPECT_EQ(http(port, "/metrics").status, 200);
  const auto before = std::chrono::steady_clock::now();
  server->close();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(1));
  EXPECT_THROW(http(port, "/metrics"), std::runtime_error);
  server->publish(shared(sample_snapshot()));  // late, and harmless
}

TEST(Server, StopsPromptlyWithAClientHalfwayThroughARequest) {
  const auto server = start_server();
  const Connection half(port_of(server->url()));
  half.send("GET /metrics HT");
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto before = std::chrono::steady_clock::now();
  server->close();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(4));
}

TEST(Server, SlowClientsDoNotKeepScrapesAway) {
  const auto server = start_server();
  const int port = port_of(server->url());
  std::vector<Connection> half;
  for (int i = 0; i < 20; ++i) {
    half.emplace_back(port);
    half.back().send("GET /metrics HT");
  }
  const HttpAnswer answer = http(port, "/metrics");
  EXPECT_EQ(answer.status, 200);
  EXPECT_LT(answer.seconds, 6);  // two rounds of the 2 s timeout, and a loaded machine
}

TEST(Server, ParallelScrapesWhilePublishing) {
  const auto server = start_server();
  const int port = port_of(server->url());
  std::atomic<int> good = 0;
  std::vector<std::thread> scrapers;
  for (int i = 0; i < 8; ++i) {
    scrapers.emplace_back([&] {
      for (int n = 0; n < 5; ++n) good += http(port, "/metrics").status == 200;
    });
  }
  for (int step = 0; step < 50; ++step) server->publish(shared(sample_snapshot(step)));
  for (std::thread& scraper : scrapers) scraper.join();
  EXPECT_EQ(good, 40);
}

}  // namespace
}  // namespace headscope
