#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "csrc/exporter/history/file_system.h"
#include "csrc/exporter/history/history_rows.h"
#include "csrc/exporter/history/history_schema.h"
#include "csrc/exporter/history/sqlite.h"
#include "headscope/built_in_sinks.h"

namespace headscope {
namespace exporter {
namespace {

constexpr int kReaderTimeoutMs = 5000;

RunHistory read_all(Database& database) {
  RunHistory history;
  database.execute("BEGIN");  // all reads see the same state while the run goes on writing
  Statement facts = database.prepare("SELECT key, value FROM run");
  while (facts.step()) history.facts[facts.text(0)] = facts.text(1);
  Statement rows = database.prepare("SELECT " + std::string(kSnapshotColumns) +
                                    " FROM current_snapshot ORDER BY step, id");
  while (rows.step()) history.snapshots.push_back(read_snapshot(database, rows));
  return history;
}

RunHistory read_file(const std::string& path, Database::Mode mode) {
  Database database(path, mode);
  database.set_busy_timeout_ms(kReaderTimeoutMs);
  if (!check_history_schema(database)) {
    throw std::runtime_error(path + ": the run history is empty");
  }
  return read_all(database);
}

}  // namespace
}  // namespace exporter

RunHistory read_history(const std::string& run_dir) {
  const std::string path = exporter::history_path(run_dir);
  if (!std::filesystem::exists(path)) {
    throw std::runtime_error("there is no run history at " + path);
  }
  exporter::check_regular_file(path);
  using Mode = exporter::Database::Mode;
  try {
    try {
      return exporter::read_file(path, Mode::kReadOnly);
    } catch (const exporter::SqliteError& error) {
      if (!error.needs_recovery()) throw;
      // The writer was killed in the middle of a transaction, which has to be undone first.
      return exporter::read_file(path, Mode::kReadWriteCreate);
    }
  } catch (const exporter::SqliteError& error) {
    throw std::runtime_error("cannot read the run history " + std::string(error.what()));
  }
}

}  // namespace headscope
