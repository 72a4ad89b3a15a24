#include "csrc/exporter/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "csrc/exporter/history/sqlite.h"
#include "csrc/exporter/http/host_check.h"
#include "csrc/exporter/page/query.h"
#include "headscope/built_in_sinks.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/metrics_server.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/temporary_directory.h"

namespace headscope {
namespace {

using exporter::is_own_host;
using exporter::parse_query;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::http;
using testing::HttpAnswer;
using ::testing::Not;
using testing::port_of;
using testing::sample_snapshot;
using testing::shared;
using testing::start_server;
using ::testing::ThrowsMessage;
using Json = nlohmann::json;

Json json(int port, const std::string& target) {
  const HttpAnswer answer = http(port, target);
  EXPECT_EQ(answer.status, 200) << target << ": " << answer.body;
  EXPECT_EQ(answer.header("Content-Type"), "application/json");
  return Json::parse(answer.body);
}

TEST(Api, SnapshotsFollowACursor) {
  const auto server = start_server();
  const int port = port_of(server->url());
  EXPECT_EQ(json(port, "/api/v1/snapshot?since=0")["snapshots"], Json::array());
  server->publish(shared(sample_snapshot(590, Source::kTrain)));
  server->publish(shared(sample_snapshot(600)));
  const Json first = json(port, "/api/v1/snapshot?since=0");
  ASSERT_EQ(first["snapshots"].size(), 2u);
  EXPECT_EQ(first["snapshots"][1]["step"], 600);
  EXPECT_EQ(first["snapshots"][1]["heads"]["id"].size(), 16u);
  const std::string next = first["next"].dump();
  EXPECT_EQ(json(port, "/api/v1/snapshot?since=" + next)["snapshots"], Json::array());
  server->publish(shared(sample_snapshot(610)));
  const Json later = json(port, "/api/v1/snapshot?since=" + next);
  ASSERT_EQ(later["snapshots"].size(), 1u);
  EXPECT_EQ(later["instance"], first["instance"]);
  EXPECT_EQ(later["reset"], false);
}

/// Six digits: half a unit of the sixth is at most 5e-6 of the value. Single precision adds 2^-24.
double rounding_of(double value) { return (5e-6 + 0x1p-24) * std::abs(value); }

/// The API's figures of a head on a pattern, each reached by `pick`.
template <typename Pick>
void expect_figures(const Json& got, const PatternReading& want, const Pick& pick) {
  const std::map<std::string, double> figures = {{"selectivity", want.selectivity},
                                                 {"mass", want.mass},
                                                 {"margin", want.margin},
                                                 {"margin_z", want.margin_z}};
  for (const auto& [name, value] : figures) {
    const double error = std::abs(pick(got[name]).template get<double>() - value);
    EXPECT_FALSE(!(error <= rounding_of(value))) << name << " differs by " << error;
  }
}

TEST(Api, AllHeadsByColumns) {
  const auto server = start_server();
  const Snapshot snapshot = sample_snapshot(617);  // figures of six digits
  server->publish(shared(snapshot));
  const Json row = json(port_of(server->url()), "/api/v1/snapshot")["snapshots"][0];
  EXPECT_EQ(row["patterns"], Json(snapshot.patterns));
  for (size_t h = 0; h < snapshot.heads.size(); ++h) {
    const HeadReading& head = snapshot.heads[h];
    EXPECT_EQ(row["heads"]["id"][h], Json::array({head.id.layer, head.id.head}));
    EXPECT_EQ(row["heads"]["participation_ratio"][h], head.participation_ratio);
    EXPECT_EQ(row["heads"]["prefix_matching"][h], head.prefix_matching);
    EXPECT_EQ(row["heads"]["specialising"][h], head.specialising);
    for (size_t p = 0; p < head.patterns.size(); ++p) {
      expect_figures(row["heads"]["patterns"][p], head.patterns[p],
                     [&](const Json& column) { return column[h]; });
    }
  }
  EXPECT_EQ(row["circuits"][0]["largest_margin_z"], 1.0 + 1 + 0.25 * 7 - 2);  // of head 1.7
}

TEST(Api, OneHeadOverTraining) {
  const auto server = start_server();
  const int port = port_of(server->url());
  for (const int64_t step : {600, 610, 620}) server->publish(shared(sample_snapshot(step)));
  const Json answer = json(port, "/api/v1/snapshot?head=1.4");
  ASSERT_EQ(answer["snapshots"].size(), 3u);
  const HeadReading head = sample_snapshot(610).heads[12];
  const Json& row = answer["snapshots"][1]["head"];
  EXPECT_EQ(row["participation_ratio"], head.participation_ratio);
  EXPECT_EQ(row["class"], "induction");
  expect_figures(row["patterns"][2], head.patterns[2], [](const Json& value) { return value; });
  EXPECT_FALSE(answer["snapshots"][1].contains("heads"));
  EXPECT_TRUE(json(port, "/api/v1/snapshot?head=9.9")["snapshots"][0]["head"].is_null());
}

TEST(Api, ThousandsOfStepsAreThinnedOut) {
  const auto server = start_server();
  const int port = port_of(server->url());
  for (int64_t step = 0; step < 3000; ++step) {
    server->publish(shared(sample_snapshot(step, Source::kTrain, {1, 2, 0, {"induction"}})));
  }
  const Json rows = json(port, "/api/v1/snapshot?points=100")["snapshots"];
  EXPECT_LE(rows.size(), 100u);
  EXPECT_GE(rows.size(), 80u);
  EXPECT_EQ(rows.front()["step"], 0);
  EXPECT_EQ(rows.back()["step"], 2999);
  const size_t by_default = json(port, "/api/v1/snapshot")["snapshots"].size();
  EXPECT_LE(by_default, 500u);
  EXPECT_GE(by_default, 400u);
}

TEST(Api, EventsAndAblationsAreThoseOfTheHistory) {
  const auto server = start_server();
  const int port = port_of(server->url());
  server->publish(shared(sample_snapshot(600)));
  const Json news = json(port, "/api/v1/events?since=0");
  EXPECT_EQ(news["events"][0]["kind"], "formed");
  EXPECT_EQ(news["events"][0]["figures"]["p_value"], "NaN");
  EXPECT_EQ(news["ablations"][0]["control_effects"].size(), 3u);
  EXPECT_EQ(news["reset"], false);
  EXPECT_EQ(json(port, "/api/v1/events?since=" + news["next"].dump())["events"], Json::array());
  EXPECT_EQ(json(port, "/api/v1/events?since=999")["reset"], true);
}

TEST(Api, TheRunHasFactsDefinitionsAndHealth) {
  ServerOptions options;
  options.facts = {{"run", "a \"quoted\" \xFF name"}};
  const auto server = start_server(options);
  const int port = port_of(server->url());
  EXPECT_TRUE(json(port, "/api/v1/run")["step"].is_null());
  server->publish(shared(sample_snapshot(600)));
  const Json run = json(port, "/api/v1/run");
  EXPECT_EQ(run["facts"]["run"], "a \"quoted\" \xEF\xBF\xBD name");
  EXPECT_EQ(run["definitions"]["controls"], "50 fixed positions");
  EXPECT_EQ(run["circuits"][0]["state"], "formed");
  EXPECT_EQ(run["health"]["taps"], 1000);
  EXPECT_EQ(run["live"], true);
}

TEST(Api, BadQueriesNameTheValue) {
  const auto server = start_server();
  const int port = port_of(server->url());
  for (const char* query :
       {"since=abc", "since=-1", "since=1.5", "since=", "since", "since=99999999999999999999",
        "since=9007199254740993", "since=1&since=2", "points=1", "points=2001", "head=1",
        "head=1.-2", "head=a.b", "x=1", "since=%30", "since=0x10", "since= 1", "since=+1"}) {
    const HttpAnswer answer = http(port, std::string("/api/v1/snapshot?") + query);
    EXPECT_EQ(answer.status, 400) << query;
    if (answer.header("Content-Type") != "application/json") continue;  // refused by civetweb
    EXPECT_THAT(Json::parse(answer.body)["error"].get<std::string>(), HasSubstr("must be"));
  }
  EXPECT_EQ(http(port, "/api/v1/run?since=0").status, 400);
  EXPECT_EQ(http(port, "/api/v1/snapshot", "POST").status, 405);
  EXPECT_EQ(http(port, "/api/v1/other").status, 404);
  EXPECT_THAT(http(port, "/api/v1/events?since=abc").body, HasSubstr("since is 'abc'"));
}

TEST(Query, ReadsWhatItKnows) {
  const exporter::Query query = parse_query("since=9007199254740992&head=3.11", "since head");
  EXPECT_EQ(query.since, uint64_t{1} << 53);
  EXPECT_EQ(*query.head, (HeadId{3, 11}));
  EXPECT_EQ(parse_query("", "since").since, 0u);
  EXPECT_THAT([] { parse_query("head=1.2", "since"); },
              ThrowsMessage<exporter::BadQuery>(HasSubstr("'head'")));
}

TEST(HostHeader, OnlyOwnNamesAreGood) {
  for (const char* good : {"", "127.0.0.1", "127.0.0.1:9464", "localhost", "LOCALHOST:1", "[::1]",
                           "[::1]:9464", "10.1.2.3:80", "trainer:9464", "Trainer"}) {
    EXPECT_TRUE(is_own_host(good, {"trainer", ""})) << good;
  }
  for (const char* bad :
       {"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.",
        "localhost:", "localhost:123456", "localhost:8a", "[::1", "[::1]x", "[]", "127.0.0.1:80:80",
        "1.2.3", ":80", "trainer2", " localhost"}) {
    EXPECT_FALSE(is_own_host(bad, {"trainer", ""})) << bad;
  }
  for (const char* name : {"127.0.0.1", "[::1]"}) {  // a NUL ends no name
    EXPECT_FALSE(is_own_host(std::string(name).insert(4, 1, '\0'), {})) << name;
  }
  EXPECT_FALSE(is_own_host(std::string_view("127.0.0.1\0.evil.example", 23), {}));
  EXPECT_TRUE(is_own_host("evil.example", {"*"}));
}

TEST(HostHeader, AnotherNameIsMisdirected) {
  ServerOptions options;
  options.host_names = {"trainer"};
  const auto server = start_server(options);
  const int port = port_of(server->url());
  for (const char* path : {"/", "/metrics", "/api/v1/run", "/app.js", "/no"}) {
    const HttpAnswer answer = http(port, path, "GET", "Host: evil.example");
    EXPECT_EQ(answer.status, 421) << path;
    EXPECT_THAT(answer.body, HasSubstr("evil.example"));
  }
  EXPECT_EQ(http(port, "/api/v1/run", "GET", "Host: trainer:80").status, 200);
}

TEST(Page, LoadsNothingFromElsewhereAndRunsNothingInline) {
  const auto server = start_server();
  const int port = port_of(server->url());
  const HttpAnswer page = http(port, "/");
  EXPECT_EQ(page.header("Content-Type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.header("Content-Security-Policy"),
              AllOf(HasSubstr("default-src 'none'"), HasSubstr("script-src 'self'"),
                    HasSubstr("frame-ancestors 'none'"), Not(HasSubstr("unsafe"))));
  EXPECT_THAT(page.body, AllOf(HasSubstr("src=\"app.js\""), Not(HasSubstr("<script>")),
                               Not(HasSubstr("<style")), Not(HasSubstr(" style=")),
                               Not(HasSubstr(" onclick"))));
  EXPECT_EQ(http(port, "/app.css").header("Content-Type"), "text/css; charset=utf-8");
  EXPECT_EQ(http(port, "/app.js").header("Content-Type"), "text/javascript; charset=utf-8");
  EXPECT_EQ(http(port, "/favicon.svg").header("Content-Type"), "image/svg+xml");
  EXPECT_EQ(http(port, "/app.js").header("X-Content-Type-Options"), "nosniff");
}

TEST(Page, IsRevalidatedByContent) {
  const auto server = start_server();
  const int port = port_of(server->url());
  const HttpAnswer script = http(port, "/app.js");
  EXPECT_EQ(script.header("Cache-Control"), "no-cache");
  const std::string tag = script.header("ETag");
  ASSERT_EQ(tag.size(), 34u);
  const HttpAnswer same = http(port, "/app.js", "GET", "Host: localhost\r\nIf-None-Match: " + tag);
  EXPECT_EQ(same.status, 304);
  EXPECT_EQ(same.body, "");
  EXPECT_EQ(http(port, "/app.js", "GET", "Host: localhost\r\nIf-None-Match: \"x\"").status, 200);
  EXPECT_EQ(http(port, "/api/v1/run").header("Cache-Control"), "no-store");
}

TEST(Page, TheEmbeddedScriptHoldsNoModuleSyntax) {
  const std::string text(exporter::web_asset("/app.js")->text);
  EXPECT_THAT(text,
              AllOf(HasSubstr("var uPlot="), HasSubstr("drawGrid"), Not(HasSubstr("\nimport ")),
                    Not(HasSubstr("\nexport ")), Not(HasSubstr("innerHTML ="))));
}

class RecordedPage : public ::testing::Test {
 protected:
  RecordedPage() {
    const auto history = open_history({.run_dir = folder_.path(),
                                       .facts = {{"run", "</script><script>alert(1)</script>"}},
                                       .log = {}});
    for (const int64_t step : {600, 610, 620}) history->publish(shared(sample_snapshot(step)));
    history->close();
  }
  testing::TemporaryDirectory folder_;
};

TEST_F(RecordedPage, TheReportHoldsItsDataAndCannotBeBrokenOut) {
  const std::string page = report_html(folder_.path());
  EXPECT_THAT(page, AllOf(HasSubstr("id=\"recorded\""), HasSubstr("script-src 'sha256-"),
                          Not(HasSubstr("src=\"app.js\"")), Not(HasSubstr("alert(1)</script>"))));
  const size_t start = page.find('{', page.find("id=\"recorded\""));
  const Json data = Json::parse(page.substr(start, page.find("</script>", start) - start));
  EXPECT_EQ(data["run"]["facts"]["run"], "</script><script>alert(1)</script>");
  EXPECT_EQ(data["timeline"]["snapshots"][0]["heads"]["id"].size(), 16u);
}

TEST_F(RecordedPage, IsServedWhileAnotherProcessWrites) {
  ServerOptions options;
  options.port = 0;
  options.run_dir = folder_.path();
  const auto server = serve_history(options);
  const int port = port_of(server->url());
  EXPECT_EQ(json(port, "/api/v1/run")["live"], false);
  const Json first = json(port, "/api/v1/snapshot");
  EXPECT_EQ(first["snapshots"].size(), 3u);
  const auto writer = open_history({.run_dir = folder_.path(), .facts = {}, .log = {}});
  Snapshot next = sample_snapshot(615);
  next.segment = 1;
  next.segment_start = 612;
  writer->publish(shared(next));
  Json rows;
  for (int i = 0; i < 100 && rows.size() != 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const Json answer = json(port, "/api/v1/snapshot?since=" + first["next"].dump());
    if (answer["reset"] == true) rows = answer["snapshots"];
  }
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2]["step"], 615);
}

TEST_F(RecordedPage, AResumedRunShowsItsEarlierSegments) {
  ServerOptions options;
  options.run_dir = folder_.path();
  const auto server = start_server(options);
  const int port = port_of(server->url());
  EXPECT_EQ(json(port, "/api/v1/snapshot")["snapshots"].size(), 0u);
  Snapshot next = sample_snapshot(615);
  next.segment = 1;
  next.segment_start = 612;
  server->publish(shared(next));
  const Json rows = json(port, "/api/v1/snapshot")["snapshots"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0]["step"], 600);
  EXPECT_EQ(rows[2]["segment"], 1);
}

TEST_F(RecordedPage, LinksAndForeignTablesAreRefused) {
  const std::string file = folder_.file("history.sqlite");
  const testing::TemporaryDirectory other;
  std::filesystem::create_symlink(file, other.file("history.sqlite"));
  EXPECT_THAT([&] { report_json(other.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("is a symbolic link")));
  std::filesystem::create_symlink("/dev/zero", file + "-wal");
  EXPECT_THAT([&] { report_json(folder_.path()); },
              ThrowsMessage<std::runtime_error>(AllOf(HasSubstr("-wal"), HasSubstr("symbolic"))));
  std::filesystem::remove(file + "-wal");
  exporter::Database(file, exporter::Database::Mode::kReadWriteCreate)
      .execute(
          "DROP VIEW current_event; DROP VIEW current_ablation; DROP VIEW current_snapshot; "
          "CREATE VIEW current_snapshot AS SELECT * FROM snapshot");
  EXPECT_THAT([&] { report_json(folder_.path()); },
              ThrowsMessage<std::runtime_error>(HasSubstr("'current_snapshot' is not defined")));
}

TEST(Pages, FiftyOfThemLeaveScrapesTheirTime) {
  const auto server = start_server();
  const int port = port_of(server->url());
  testing::SampleShape shape;
  shape.layers = 32;
  shape.heads = 32;
  shape.eigenvalues = 0;
  for (int64_t step = 0; step < 20; ++step)
    server->publish(shared(sample_snapshot(600 + step, Source::kProbe, shape)));
  std::atomic<bool> stop = false;
  std::atomic<int> polled = 0;
  std::vector<std::thread> pages;
  for (int i = 0; i < 50; ++i) {
    pages.emplace_back([&] {
      while (!stop) {
        polled += http(port, "/api/v1/snapshot?since=0&head=3.7").status == 200;
        polled += http(port, "/api/v1/events?since=0").status == 200;
      }
    });
  }
  int scraped = 0;
  double slowest = 0;
  while (scraped < 5 || polled < 100) {
    const HttpAnswer answer = http(port, "/metrics");
    ASSERT_EQ(answer.status, 200);
    slowest = std::max(slowest, answer.seconds);
    ++scraped;
  }
  stop = true;
  for (std::thread& page : pages) page.join();
  EXPECT_LT(slowest, 10) << "Prometheus' own patience";
}

}  // namespace
}  // namespace headscope
