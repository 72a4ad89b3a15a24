#include "csrc/exporter/http/host_check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <strings.h>
#include <unistd.h>

#include <algorithm>

namespace headscope::exporter {
namespace {

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && strncasecmp(a.data(), b.data(), a.size()) == 0;
}

bool is_port(std::string_view text) {
  return !text.empty() && text.size() <= 5 &&
         text.find_first_not_of("0123456789") == std::string_view::npos;
}

bool is_address(int family, std::string_view text) {
  in6_addr address{};                                           // room for both families
  if (text.find('\0') != std::string_view::npos) return false;  // ends what inet_pton() reads
  return inet_pton(family, std::string(text).c_str(), &address) == 1;
}

}  // namespace

bool is_own_host(std::string_view host, const std::vector<std::string>& names) {
  if (host.empty()) return true;  // no browser leaves it out
  if (host.front() == '[') {
    const size_t end = host.find(']');
    if (end == std::string_view::npos) return false;
    const std::string_view rest = host.substr(end + 1);
    const bool good_rest = rest.empty() || (rest.front() == ':' && is_port(rest.substr(1)));
    return good_rest && is_address(AF_INET6, host.substr(1, end - 1));
  }
  const size_t colon = host.find(':');
  if (colon != std::string_view::npos && !is_port(host.substr(colon + 1))) return false;
  const std::string_view name = host.substr(0, colon);
  return equal_ignoring_case(name, "localhost") || is_address(AF_INET, name) ||
         std::any_of(names.begin(), names.end(), [&](const std::string& own) {
           return own == "*" || (!own.empty() && equal_ignoring_case(name, own));
         });
}

std::string machine_name() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

}  // namespace headscope::exporter
