#include "csrc/exporter/http/http_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string_view>
#include <system_error>
#include <thread>

#include "csrc/exporter/http/inherited_sockets.h"
#include "headscope/process.h"

namespace headscope::exporter {
namespace {

constexpr std::chrono::milliseconds kThreadStartLimit{500};
constexpr char kTls12AndLater[] = "4";

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

sockaddr_in socket_address_of(const std::string& address, int port) {
  sockaddr_in socket_address{};
  socket_address.sin_family = AF_INET;
  socket_address.sin_port = htons(static_cast<uint16_t>(port));
  if (inet_pton(AF_INET, address.c_str(), &socket_address.sin_addr) != 1) {
    fail(EINVAL, "not an IPv4 address: " + address);
  }
  return socket_address;
}

/// Says why an address cannot be listened on, which civetweb only writes to its log.
void check_address(const std::string& address, int port) {
  const std::string where = "cannot listen on " + address + ":" + std::to_string(port);
  const sockaddr_in socket_address = socket_address_of(address, port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail(errno, where);
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const auto* generic = reinterpret_cast<const sockaddr*>(&socket_address);
  const bool free = bind(fd, generic, sizeof socket_address) == 0 && listen(fd, 1) == 0;
  const int error = errno;
  close(fd);
  if (!free) fail(error, where);
}

/// civetweb opens libssl.so when HTTPS is first asked for. Where OpenSSL 3 lacks a name that it
/// looks for, a library of ours answers to that file name (openssl3.cpp); where ours cannot be
/// opened, civetweb says what it misses.
void open_libssl() {
  static const void* const kLibrary = dlopen("libheadscope_openssl3.so", RTLD_NOW | RTLD_LOCAL);
  static_cast<void>(kLibrary);
}

/// Puts the host's disposition of SIGPIPE back after each civetweb thread that has set it to
/// "ignore". The threads write with MSG_NOSIGNAL and have the signal blocked, so they need no
/// disposition of their own.
class SigpipeKeeper {
 public:
  SigpipeKeeper() { sigaction(SIGPIPE, nullptr, &hosts_); }

  void thread_started() {
    const std::lock_guard lock(mutex_);
    struct sigaction now {};
    sigaction(SIGPIPE, nullptr, &now);
    const bool ignored = (now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN;
    if (ignored) sigaction(SIGPIPE, &hosts_, nullptr);
    ++started_;
    changed_.notify_all();
  }

  void wait_for_threads(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kThreadStartLimit, [&] { return started_ >= count; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  struct sigaction hosts_ {};
  int started_ = 0;
};

/// civetweb looks for the wish to stop only when its wait for connections ends, every two seconds:
/// this connects until it is destroyed, so that the wait ends at once.
class Waker {
 public:
  Waker(const std::string& address, int port) {
    const SignalsBlocked blocked;
    thread_ = std::thread([this, address, port] {
      while (!stopped_) {
        knock(address == "0.0.0.0" ? "127.0.0.1" : address, port);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    });
  }
  ~Waker() {
    stopped_ = true;
    thread_.join();
  }
  Waker(const Waker&) = delete;
  Waker& operator=(const Waker&) = delete;

 private:
  static void knock(const std::string& address, int port) {
    const sockaddr_in socket_address = socket_address_of(address, port);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return;
    connect(fd, reinterpret_cast<const sockaddr*>(&socket_address), sizeof socket_address);
    close(fd);
  }

  std::atomic<bool> stopped_ = false;
  std::thread thread_;
};

void write_response(mg_connection* connection, const HttpResponse& response, bool with_body) {
  const std::string_view tail = response.tail ? std::string_view(*response.tail) : "";
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " +
                     mg_get_response_code_text(connection, response.status) +
                     "\r\nContent-Type: " + response.content_type +
                     "\r\nContent-Length: " + std::to_string(response.body.size() + tail.size()) +
                     "\r\nX-Content-Type-Options: nosniff"
                     "\r\nCross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n";
  bool cache_control = false;
  for (const auto& [name, value] : response.headers) {
    head += name + ": " + value + "\r\n";
    cache_control |= name == "Cache-Control";
  }
  if (!cache_control) head += "Cache-Control: no-store\r\n";
  head += "\r\n";
  if (mg_write(connection, head.data(), head.size()) <= 0 || !with_body) return;
  for (const std::string_view part : {std::string_view(response.body), tail}) {
    if (!part.empty() && mg_write(connection, part.data(), part.size()) <= 0) return;
  }
}

}  // namespace

struct HttpServer::Impl {
  std::string address;
  HttpHandler handler;
  SigpipeKeeper sigpipe;
  mg_context* context = nullptr;
  sockaddr_in bound{};
  bool listening = false;  // written while no fork can happen
  std::atomic<bool> inherited = false;
  // A forked child has the memory of this object and its sockets, but none of its threads.
  const ForkRegistration registration = on_fork_child([this] {
    inherited = true;
    if (listening) close_sockets_at(bound);
  });

  static int begin_request(mg_connection* connection) {
    const mg_request_info* info = mg_get_request_info(connection);
    const auto* self = static_cast<const Impl*>(info->user_data);
    const auto text = [](const char* s) { return std::string(s ? s : ""); };
    const HttpRequest request{.method = text(info->request_method),
                              .path = text(info->local_uri_raw),
                              .query = text(info->query_string),
                              .host = text(mg_get_header(connection, "Host")),
                              .if_none_match = text(mg_get_header(connection, "If-None-Match")),
                              .authorization = text(mg_get_header(connection, "Authorization"))};
    HttpResponse response;
    try {
      response = self->handler(request);
    } catch (...) {
      response = {500, "text/plain; charset=utf-8", "internal error\n", {}, {}};
    }
    write_response(connection, response, request.method != "HEAD");
    return response.status;
  }

  /// civetweb's own error answers echo the request and use gmtime(), which the host may be using
  /// too.
  static int http_error(mg_connection* connection, int status, const char*) {
    const std::string text = mg_get_response_code_text(connection, status);
    write_response(connection, {status, "text/plain; charset=utf-8", text + "\n", {}, {}}, true);
    return 0;
  }

  static void* init_thread(const mg_context* context, int) {
    static_cast<Impl*>(mg_get_user_data(context))->sigpipe.thread_started();
    return nullptr;
  }

  /// Not to stderr; what is said while starting is the cause of a failure.
  static int log_message(const mg_connection* connection, const char* message) {
    auto* self = static_cast<Impl*>(mg_get_user_data(mg_get_context(connection)));
    const std::lock_guard lock(self->start_mutex);
    if (self->starting) self->start_error += std::string("; ") + message;
    return 1;
  }

  std::mutex start_mutex;
  bool starting = true;
  std::string start_error;

  std::string started() {
    const std::lock_guard lock(start_mutex);
    starting = false;
    return start_error;
  }
};

HttpServer::HttpServer(const Options& options, HttpHandler handler)
    : impl_(std::make_unique<Impl>()) {
  impl_->address = options.address;
  impl_->handler = std::move(handler);
  mg_callbacks callbacks{};
  callbacks.begin_request = &Impl::begin_request;
  callbacks.http_error = &Impl::http_error;
  callbacks.init_thread = &Impl::init_thread;
  callbacks.log_message = &Impl::log_message;
  const bool tls = !options.certificate_file.empty();
  const std::string where = options.address + ":" + std::to_string(options.port);
  const std::string listening = where + (tls ? "s" : "");
  const std::string threads = std::to_string(options.threads);
  const std::string timeout = std::to_string(options.request_timeout_ms);
  const char* settings[] = {"listening_ports",
                            listening.c_str(),
                            "num_threads",
                            threads.c_str(),
                            "request_timeout_ms",
                            timeout.c_str(),
                            "enable_keep_alive",
                            "no",
                            "enable_directory_listing",
                            "no",
                            tls ? "ssl_certificate" : nullptr,  // the list ends at a null
                            options.certificate_file.c_str(),
                            "ssl_protocol_version",
                            kTls12AndLater,
                            nullptr};
  {
    // A child made in the middle would keep a socket of which it does not know.
    const auto no_forks = hold_forks();
    static const unsigned kLibrary = mg_init_library(MG_FEATURES_DEFAULT);  // for the process
    static_cast<void>(kLibrary);
    check_address(options.address, options.port);
    if (tls) open_libssl();
    const SignalsBlocked blocked;
    impl_->context = mg_start(&callbacks, impl_.get(), settings);
    const std::string error = impl_->started();
    if (impl_->context == nullptr && tls) {
      fail(EPROTO, "no HTTPS with the certificate " + options.certificate_file + error);
    }
    // The address was free a moment ago, so somebody was faster.
    if (impl_->context == nullptr) fail(EADDRINUSE, "cannot listen on " + where);
    impl_->bound = socket_address_of(options.address, port());
    impl_->listening = true;
  }
  impl_->sigpipe.wait_for_threads(options.threads + 1);
}

HttpServer::~HttpServer() {
  if (impl_->context == nullptr || impl_->inherited) return;
  const Waker waker(impl_->address, port());
  mg_stop(impl_->context);
}

int HttpServer::port() const {
  mg_server_port port{};
  mg_get_server_ports(impl_->context, 1, &port);
  return port.port;
}

}  // namespace headscope::exporter
