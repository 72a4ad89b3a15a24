#pragma once

#include <string>
#include <string_view>

#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// Basic authentication of one user.
class BasicAuth {
 public:
  /// Reads the password. Throws std::runtime_error that names the file or variable, never what is
  /// in it.
  explicit BasicAuth(const AccessOptions& options);

  /// Whether a request with this Authorization header (empty: none) may be answered. Takes the same
  /// time wherever a wrong header of the right length differs. Always true when no user was named.
  bool allows(std::string_view authorization) const;

 private:
  std::string expected_;  // the whole header; empty: everybody
};

}  // namespace headscope::exporter
