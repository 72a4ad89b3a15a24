#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace headscope::exporter {

struct HttpRequest {
  std::string method;  ///< "GET", ...
  /// URL-decoded, not cleaned, without the query; empty when the request names another host.
  std::string path;
  std::string query;          ///< what follows the '?', as sent
  std::string host;           ///< the header, as sent
  std::string if_none_match;  ///< the header, as sent
  std::string authorization;  ///< the header, as sent
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;  ///< Cache-Control: else no-store
  std::shared_ptr<const std::string> tail;  ///< follows the body; shared by many answers
};

using HttpHandler = std::function<HttpResponse(const HttpRequest&)>;

/// An embedded web server with a fixed number of threads, which keeps out of its host's way: its
/// threads take no signals, and the disposition of SIGPIPE is the host's again when the constructor
/// returns. A forked child closes its copies of the sockets, and may destroy the object.
class HttpServer {
 public:
  struct Options {
    std::string address;  ///< IPv4, numeric
    int port = 0;         ///< 0: any free port
    int threads = 16;
    int request_timeout_ms = 2000;
    std::string certificate_file;  ///< PEM with certificate and key: HTTPS; empty: HTTP
  };

  /// Starts serving. `handler` is called from several threads at once; what it throws becomes a
  /// 500. Throws std::system_error with EADDRINUSE when the port is taken, or another cause.
  HttpServer(const Options& options, HttpHandler handler);
  /// Stops; waits for requests in flight, at most about the request timeout.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headscope::exporter
