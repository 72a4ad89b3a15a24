// Any bytes as a request. Those that begin with 'R' go to a server over a socket as they are; of
// others each line is a field of a request whose parts are called without one.

#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include "csrc/exporter/http/access.h"
#include "csrc/exporter/http/host_check.h"
#include "csrc/exporter/page/page.h"
#include "csrc/exporter/page/query.h"
#include "csrc/exporter/page/run_api.h"
#include "headscope/built_in_sinks.h"
#include "tests/fuzz/require.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/sample_snapshot.h"

namespace headscope::fuzz {
namespace {

using exporter::HttpRequest;
using exporter::HttpResponse;
using exporter::RunApi;
using testing::sample_snapshot;
using testing::shared;

constexpr char kPasswordVariable[] = "HEADSCOPE_FUZZ_PASSWORD";
constexpr char kGoodAuthorization[] = "Basic dTpwYXNz";
constexpr std::string_view kCredentials = "dTpwYXNz";
constexpr char kSecret[] = "only-for-u";
constexpr std::array<std::string_view, 3> kKnown = {"", "since", "since head points"};

AccessOptions access() {
  setenv(kPasswordVariable, "pass", 1);
  AccessOptions access;
  access.user = "u";
  access.password_env = kPasswordVariable;
  return access;
}

RunFacts facts() { return {{"run", kSecret}}; }

template <typename Target>
void publish_sample(Target& target) {
  testing::SampleShape shape;  // little: every input asks for all of it
  shape.heads = 3;
  shape.patterns = {"induction", "self"};
  for (int64_t step = 1; step <= 4; ++step) {
    const Source source = step % 2 == 0 ? Source::kProbe : Source::kTrain;
    target.publish(shared(sample_snapshot(step, source, shape)));
  }
}

/// Kept until the process ends: it serves all inputs.
int served_port() {
  static const auto* const kServer = [] {
    ServerOptions options;
    options.port = 0;
    options.threads = 2;
    options.request_timeout_ms = 1000;
    options.access = access();
    options.facts = facts();
    auto* server = new std::shared_ptr<MetricsServer>(start_metrics_server(options));
    publish_sample(**server);
    return server;
  }();
  static const int kPort = testing::port_of((*kServer)->url());
  return kPort;
}

/// A burst of connections may use up what the kernel lends; a server that died stays away.
testing::Connection connected() {
  for (int i = 0; i < 1000; ++i) {
    try {
      return testing::Connection(served_port());
    } catch (const std::exception&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  require(false, "the server takes connections", "");
  std::abort();
}

std::string answer_of(std::string_view bytes) {
  const testing::Connection connection = connected();
  connection.send(bytes);
  connection.end_sending();
  return connection.receive_all(60);
}

void ask_by_socket(std::string_view bytes) {
  const std::string answer = answer_of(bytes);
  if (answer.empty()) return;  // closed, as for what is no HTTP at all
  const size_t split = answer.find("\r\n\r\n");
  require(answer.starts_with("HTTP/1.1 ") && split != std::string::npos && split >= 12,
          "an answer is one of HTTP", answer);
  const std::string head = answer.substr(0, split + 2);
  const int status = std::atoi(head.c_str() + 9);
  require(status == 200 || status == 304 || (status >= 400 && status < 500) || status == 501 ||
              status == 505,
          "no request makes the server fail", head);
  require(head.find("\r\nX-Content-Type-Options: nosniff\r\n") != std::string::npos,
          "every answer forbids sniffing", head);
  if (bytes.find(kCredentials) == std::string_view::npos) {
    require(answer.find(kSecret) == std::string::npos, "nothing is told without the password",
            answer);
  }
  const size_t length = head.find("\r\nContent-Length: ");
  require(length != std::string::npos, "every answer says how long it is", head);
  const size_t body = answer.size() - split - 4;
  const bool whole = std::strtoull(head.c_str() + length + 18, nullptr, 10) == body;
  require(whole || (body == 0 && bytes.find("HEAD") != std::string_view::npos),
          "an answer is as long as it says", head);
}

HttpRequest request_of(std::string_view bytes) {
  HttpRequest request;
  for (std::string* field : {&request.path, &request.query, &request.host, &request.authorization,
                             &request.if_none_match, &request.method}) {
    const size_t end = bytes.find('\n');
    *field = bytes.substr(0, end);
    bytes = end == std::string_view::npos ? "" : bytes.substr(end + 1);
  }
  return request;
}

void check_host(const std::string& host) {
  if (!exporter::is_own_host(host, {"headscope.lan", ""})) return;
  require(host.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                 ".:[]-") == std::string::npos,
          "only names and addresses are this server's", host);
}

void check_query(const std::string& text) {
  for (const std::string_view known : kKnown) {
    try {
      const exporter::Query query = exporter::parse_query(text, known);
      require(query.since <= uint64_t{1} << 53 && query.points >= 2 && query.points <= 2000,
              "figures of a query are in range", text);
      require(!query.head || (query.head->layer >= 0 && query.head->head >= 0),
              "heads count from 0", text);
    } catch (const exporter::BadQuery& error) {
      const std::string_view what = error.what();
      require(what.size() < 300, "an error is a line", text);
      for (const char c : what) require(c >= 0x20 && c <= 0x7E, "an error is ASCII", text);
    }
  }
}

void check_api(HttpRequest request) {
  static RunApi& api = *[] {
    auto* made = new RunApi({.facts = facts(), .health = {}, .run_dir = {}});
    publish_sample(*made);
    return made;
  }();
  for (const char* path : {"/api/v1/run", "/api/v1/snapshot", "/api/v1/events"}) {
    request.path = path;
    const HttpResponse response = api.answer(request);
    const auto json = nlohmann::json::parse(response.body, nullptr, false);
    require(!json.is_discarded(), "every answer of the API is JSON", response.body);
    require(response.status == (json.contains("error") ? 400 : 200), "errors have their status",
            response.body);
  }
}

void check_page(const HttpRequest& request) {
  const exporter::WebAsset* asset = exporter::web_asset(request.path);
  if (asset == nullptr) asset = exporter::web_asset("/");
  const HttpResponse response = exporter::page_response(*asset, request);
  require(response.status == (response.body.empty() ? 304 : 200), "a page or not modified",
          request.if_none_match);
  require(response.status == 200 || request.if_none_match.size() == 34,
          "not modified only for the tag of the page", request.if_none_match);
}

void ask_the_parts(const HttpRequest& request) {
  static const exporter::BasicAuth& auth = *new exporter::BasicAuth(access());
  require(auth.allows(request.authorization) == (request.authorization == kGoodAuthorization),
          "the password and nothing else", request.authorization);
  check_host(request.host);
  check_query(request.query);
  check_api(request);
  check_page(request);
}

}  // namespace
}  // namespace headscope::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headscope::fuzz;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.starts_with('R')) {
    ask_by_socket(bytes.substr(1));
  } else {
    ask_the_parts(request_of(bytes));
  }
  return 0;
}
