#include <arpa/inet.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "csrc/exporter/common/atomic_file.h"
#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/http/access.h"
#include "csrc/exporter/http/host_check.h"
#include "csrc/exporter/http/http_server.h"
#include "csrc/exporter/metrics/health_metrics.h"
#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "csrc/exporter/page/page.h"
#include "csrc/exporter/page/run_api.h"
#include "csrc/exporter/servers/process_bound_server.h"
#include "headscope/built_in_sinks.h"

namespace headscope {
namespace exporter {
namespace {

constexpr int kLastPort = 65535;

/// What scrapes read between two snapshots. Serialised by the first scrape that asks, not by the
/// publisher.
class Exposition {
 public:
  Exposition(ExportState state, uint64_t number) : metrics_(std::move(state)), number_(number) {}

  const ExportState& state() const { return metrics_.state(); }
  uint64_t number() const { return number_; }  ///< counts publications
  const std::string& text() const {
    std::call_once(once_, [this] { text_ = serialise(metrics_); });
    return text_;
  }

 private:
  RunMetrics metrics_;
  uint64_t number_;
  mutable std::once_flag once_;
  mutable std::string text_;
};

std::string numeric_address(const std::string& host) {
  if (host == "localhost") return "127.0.0.1";
  in_addr address{};
  if (inet_pton(AF_INET, host.c_str(), &address) == 1) return host;
  throw std::runtime_error("metrics server: host '" + sanitise_terminal(host) +
                           "' is not an IPv4 address; use 127.0.0.1 for this machine only or "
                           "0.0.0.0 for all its interfaces");
}

void check_options(const ServerOptions& options) {
  const auto require = [](bool good, const std::string& name, int value, const std::string& range) {
    if (good) return;
    throw std::runtime_error("metrics server: " + name + " is " + std::to_string(value) +
                             "; it must be " + range);
  };
  require(options.port >= 0 && options.port <= kLastPort, "port", options.port, "0 to 65535");
  require(options.ports_to_try >= 1, "ports_to_try", options.ports_to_try, "at least 1");
  require(options.threads >= 1 && options.threads <= 64, "threads", options.threads, "1 to 64");
  require(options.request_timeout_ms >= 100, "request_timeout_ms", options.request_timeout_ms,
          "at least 100");
}

class Server : public MetricsServer {
 public:
  explicit Server(const ServerOptions& options)
      : options_(options),
        address_(numeric_address(options.host)),
        auth_(options.access),
        host_names_(options.host_names),
        api_({options.facts, options.health, options.run_dir, options.live}) {
    check_options(options_);
    host_names_.push_back(machine_name());
    exposition_ = std::make_shared<const Exposition>(ExportState{}, 0);
    start();
    // "All interfaces" is no address to go to.
    const bool tls = !options_.access.certificate_file.empty();
    url_ = (tls ? "https://" : "http://") + (address_ == "0.0.0.0" ? "127.0.0.1" : address_) + ":" +
           std::to_string(http_->port());
    announce_endpoint();
    log(LogLevel::kInfo, "serving metrics on " + url_ + "/metrics");
  }

  ~Server() override { Server::close(); }

  std::string name() const override { return "server"; }

  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    const auto last = current();
    auto next = std::make_shared<const Exposition>(state_after(last->state(), snapshot),
                                                   last->number() + 1);
    api_.publish(snapshot);
    const std::lock_guard lock(mutex_);
    exposition_.swap(next);
  }

  void close() override {
    if (!http_) return;
    http_.reset();
    withdraw_endpoint();
  }

  std::string url() const override { return url_; }

 private:
  /// Metrics without the file are better than no metrics.
  void announce_endpoint() {
    if (options_.endpoint_file.empty()) return;
    try {
      replace_atomically(options_.endpoint_file, url_ + "\n");
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, std::string("the endpoint file is not written: ") + error.what());
    }
  }

  void start() {
    const int last =
        options_.port == 0 ? 0 : std::min(kLastPort, options_.port + options_.ports_to_try - 1);
    for (int port = options_.port; port <= last && !http_; ++port) {
      try {
        http_ = std::make_unique<HttpServer>(
            HttpServer::Options{address_, port, options_.threads, options_.request_timeout_ms,
                                options_.access.certificate_file},
            [this](const HttpRequest& request) { return answer(request); });
      } catch (const std::system_error& error) {
        if (error.code().value() != EADDRINUSE) {
          throw std::runtime_error(std::string("metrics server: ") + error.what());
        }
      }
    }
    if (!http_) {
      throw std::runtime_error("metrics server: every port from " + std::to_string(options_.port) +
                               " to " + std::to_string(last) + " on " + address_ +
                               " is taken; use port 0 for any free one");
    }
    if (options_.port != 0 && http_->port() != options_.port) {
      log(LogLevel::kWarning, "port " + std::to_string(options_.port) + " on " + address_ +
                                  " is taken, using port " + std::to_string(http_->port()));
    }
  }

  std::shared_ptr<const Exposition> current() const {
    const std::lock_guard lock(mutex_);  // for the copy of a pointer only
    return exposition_;
  }

  /// The newest snapshot's text, or one that is as new as the request. One is made at a time: a
  /// storm of scrapes costs the host one core and the memory of one.
  std::shared_ptr<const Exposition> serialised() const {
    const uint64_t asked = current()->number();
    const std::lock_guard one_at_a_time(serialising_);
    if (!serialised_ || serialised_->number() < asked) serialised_ = current();
    static_cast<void>(serialised_->text());
    return serialised_;
  }

  HttpResponse answer(const HttpRequest& request) {
    if (!is_own_host(request.host, host_names_)) {
      return {421,
              "text/plain; charset=utf-8",
              "the name '" + sanitise_terminal(request.host.substr(0, kMaxLabelBytes)) +
                  "' is not one of this server's: use its IP address, or add the name to "
                  "host_names\n",
              {},
              {}};
    }
    const WebAsset* asset = web_asset(request.path);
    const bool known = asset != nullptr || RunApi::knows(request.path) ||
                       request.path == "/metrics" || request.path == "/-/healthy";
    if (!known) return {404, "text/plain; charset=utf-8", "not found\n", {}, {}};
    if (request.method != "GET" && request.method != "HEAD") {
      return {
          405, "text/plain; charset=utf-8", "method not allowed\n", {{"Allow", "GET, HEAD"}}, {}};
    }
    if (request.path == "/-/healthy") return {200, "text/plain; charset=utf-8", "ok\n", {}, {}};
    if (!auth_.allows(request.authorization)) {
      return {401,
              "text/plain; charset=utf-8",
              "user and password are needed\n",
              {{"WWW-Authenticate", "Basic realm=\"headscope\", charset=\"UTF-8\""}},
              {}};
    }
    if (asset != nullptr) return page_response(*asset, request);
    if (RunApi::knows(request.path)) return api_.answer(request);
    const std::shared_ptr<const Exposition> now = serialised();
    return {
        200,
        "text/plain; version=0.0.4; charset=utf-8",
        serialise(HealthMetrics(health(now->state()), options_.facts, options_.deadline_tokens)),
        {},
        {now, &now->text()}};
  }

  Health health(const ExportState& state) const {
    if (options_.health) return options_.health();
    return state.latest ? state.latest->health : Health{};
  }

  /// A file that another server has written since is not ours to remove.
  void withdraw_endpoint() const {
    std::error_code ignored;  // a pipe in its place would never answer
    if (!std::filesystem::is_regular_file(options_.endpoint_file, ignored)) return;
    std::string published;
    std::getline(std::ifstream(options_.endpoint_file), published);
    if (published == url_) std::remove(options_.endpoint_file.c_str());
  }

  void log(LogLevel level, const std::string& line) const {
    if (options_.log) options_.log(level, line);
  }

  const ServerOptions options_;
  const std::string address_;
  const BasicAuth auth_;
  std::vector<std::string> host_names_;
  RunApi api_;
  std::string url_;
  mutable std::mutex serialising_;  // scrapes only
  mutable std::shared_ptr<const Exposition> serialised_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Exposition> exposition_;
  std::unique_ptr<HttpServer> http_;  // last: its threads use all of the above
};

}  // namespace
}  // namespace exporter

std::shared_ptr<MetricsServer> start_metrics_server(const ServerOptions& options) {
  return std::make_shared<exporter::ProcessBoundServer>(
      std::make_unique<exporter::Server>(options));
}

}  // namespace headscope
