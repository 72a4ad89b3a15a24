#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

class Database;

/// Reads a run's history as it grows, from a directory that need not be trusted: nothing but the
/// history is opened, and what is not one gives a clear error. Used by one thread at a time; never
/// keeps the file open or locked between calls.
class HistoryCursor {
 public:
  /// Throws std::runtime_error when there is no history in `run_dir`, when it or a file beside it
  /// that SQLite would open is a symbolic link or no regular file, or when its tables are not those
  /// of a headscope history.
  explicit HistoryCursor(const std::string& run_dir);

  /// The current snapshots that were written since the last call, in order of writing, thinned out
  /// to about `rows` of each source; those with events or ablations are all there. Of segments up
  /// to `last_segment` only. Throws like the constructor.
  std::vector<std::shared_ptr<const Snapshot>> next(
      size_t rows, int64_t last_segment = std::numeric_limits<int64_t>::max());

  /// The facts of the run.
  RunFacts facts() const;

 private:
  void with_database(const std::function<void(Database&)>& read) const;

  std::string path_;
  int64_t last_id_ = 0;
};

}  // namespace headscope::exporter
