#pragma once

#include <string_view>

namespace headscope::exporter {

/// Writes to a descriptor that may be a terminal, a pipe nobody reads any more, or full: text that
/// does not get through is dropped. Never throws, never raises SIGPIPE in the process, waits at
/// most 100 ms for room.
class Terminal {
 public:
  explicit Terminal(int descriptor) : descriptor_(descriptor) {}

  /// A terminal whose line can be rewritten (not TERM=dumb).
  bool can_rewrite() const;
  /// Width in columns, 80 where it cannot be told.
  int columns() const;
  void write(std::string_view text) const;

 private:
  int descriptor_;
};

}  // namespace headscope::exporter
