#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headscope::exporter {

/// Whether a request's Host header names this server. A web page that a person has open elsewhere
/// can make its own name point here (DNS rebinding) and would read the run; it cannot make the
/// browser send another name. Good are: none, an IP address, "localhost", `names` ("*": any), in
/// capitals or not, with a port or without.
bool is_own_host(std::string_view host, const std::vector<std::string>& names);

/// This machine's name, empty when it has none.
std::string machine_name();

}  // namespace headscope::exporter
