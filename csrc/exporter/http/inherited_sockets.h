#pragma once

#include <netinet/in.h>

namespace headscope::exporter {

/// Closes this process's TCP sockets at `local`, listening or connected: a forked child would keep
/// the port taken and connections open after its parent has died. 0.0.0.0 means any address.
/// Async-signal-safe. Does nothing where /proc is not mounted.
void close_sockets_at(const sockaddr_in& local) noexcept;

}  // namespace headscope::exporter
