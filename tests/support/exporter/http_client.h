#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace headscope::testing {

/// A TCP connection to 127.0.0.1, closed with the object.
class Connection {
 public:
  explicit Connection(int port) : descriptor_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
      const std::string cause = std::strerror(errno);
      ::close(descriptor_);
      throw std::runtime_error("cannot connect to port " + std::to_string(port) + ": " + cause);
    }
  }
  Connection(Connection&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Connection& operator=(Connection&&) = delete;
  ~Connection() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  void send(std::string_view text) const {
    ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL);
  }

  /// Says that no more comes; the answer can still be received.
  void end_sending() const { shutdown(descriptor_, SHUT_WR); }

  /// Everything until the other side closes, or until `seconds` pass without a byte.
  std::string receive_all(double seconds = 20) const {
    std::string text;
    char buffer[65536];
    for (;;) {
      pollfd readable{descriptor_, POLLIN, 0};
      if (poll(&readable, 1, static_cast<int>(seconds * 1000)) <= 0) return text;
      const ssize_t got = recv(descriptor_, buffer, sizeof buffer, 0);
      if (got <= 0) return text;
      text.append(buffer, static_cast<size_t>(got));
    }
  }

  /// Closes with a reset instead of an orderly end.
  void reset() {
    const linger at_once{1, 0};
    setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    ::close(std::exchange(descriptor_, -1));
  }

 private:
  int descriptor_;
};

struct HttpAnswer {
  int status = 0;  ///< 0: no answer
  std::string head;
  std::string body;
  double seconds = 0;

  /// Value of a header, empty when it is not there. Names as the server writes them.
  std::string header(const std::string& name) const {
    const size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const size_t start = at + name.size() + 4;
    return head.substr(start, head.find("\r\n", start) - start);
  }
};

/// What the server says to these bytes, on a connection of their own.
inline HttpAnswer answer_to(int port, std::string_view bytes) {
  const auto start = std::chrono::steady_clock::now();
  const Connection connection(port);
  connection.send(bytes);
  const std::string text = connection.receive_all();
  HttpAnswer answer;
  answer.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const size_t split = text.find("\r\n\r\n");
  if (split == std::string::npos || !text.starts_with("HTTP/1.1 ")) return answer;
  answer.status = std::stoi(text.substr(9, 3));
  answer.head = text.substr(0, split + 2);
  answer.body = text.substr(split + 4);
  return answer;
}

/// One request. `target` and `header` are sent as they are.
inline HttpAnswer http(int port, const std::string& target, const std::string& method = "GET",
                       const std::string& header = "Host: 127.0.0.1") {
  return answer_to(port, method + " " + target + " HTTP/1.1\r\n" + header + "\r\n\r\n");
}

/// The port of "http://host:port".
inline int port_of(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }

}  // namespace headscope::testing
