#include "csrc/exporter/history/history_cursor.h"

#include <algorithm>
#include <filesystem>
#include <stdexcept>

#include "csrc/exporter/common/thinning.h"
#include "csrc/exporter/history/history_rows.h"
#include "csrc/exporter/history/history_schema.h"
#include "csrc/exporter/history/sqlite.h"

namespace headscope::exporter {
namespace {

constexpr int kFollowerTimeoutMs = 2000;

/// SQLite follows links, also those in the place of the files that it keeps beside a database.
void check_files(const std::string& path) {
  namespace fs = std::filesystem;
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    std::error_code unknown;
    const fs::file_status status = fs::symlink_status(path + suffix, unknown);
    if (fs::exists(status) && !fs::is_regular_file(status)) {
      throw std::runtime_error(path + suffix +
                               (fs::is_symlink(status) ? " is a symbolic link" : " is not a file") +
                               "; copy the run's own files into a directory and name that");
    }
    if (*suffix == '\0' && !fs::exists(status)) {
      throw std::runtime_error("there is no run history at " + path);
    }
  }
}

/// How an object of the schema was defined; empty: it is not there.
std::string definition_of(Database& database, const std::string& name) {
  Statement statement =
      database.prepare("SELECT type || ' ' || sql FROM sqlite_schema WHERE name = ?");
  statement.bind(1, std::string_view(name));
  return statement.step() ? statement.text(0) : std::string();
}

/// Tables may hold anything, but a view or a generated column of somebody else's is code.
void check_definitions(Database& database) {
  Database ours(":memory:", Database::Mode::kReadWriteCreate);
  create_history_schema(ours);
  for (const char* name : {"run", "stretch", "snapshot", "event", "ablation", "current_snapshot"}) {
    if (definition_of(database, name) == definition_of(ours, name)) continue;
    throw std::runtime_error(database.path() + ": '" + name +
                             "' is not defined as in a headscope history");
  }
}

struct RowId {
  int64_t id;
  bool probe;
  bool news;
};

/// Ids of the rows to read: about `rows` of each source, and those with news.
std::vector<int64_t> chosen(const std::vector<RowId>& found, size_t rows) {
  std::vector<int64_t> ids;
  std::vector<int64_t> of_source[2];
  for (const RowId& row : found) {
    of_source[row.probe].push_back(row.id);
    if (row.news) ids.push_back(row.id);
  }
  for (const auto& candidates : of_source)
    for (const size_t i : thinned_indices(candidates.size(), rows)) ids.push_back(candidates[i]);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

std::vector<RowId> rows_after(Database& database, int64_t last_id, int64_t last_segment) {
  std::vector<RowId> found;
  Statement list = database.prepare(
      "SELECT s.id, s.source = 'probe', EXISTS (SELECT 1 FROM event e WHERE e.snapshot = s.id) OR "
      "EXISTS (SELECT 1 FROM ablation a WHERE a.snapshot = s.id) FROM current_snapshot s "
      "WHERE s.id > ? AND s.segment <= ? ORDER BY s.id");
  list.bind(1, last_id).bind(2, last_segment);
  while (list.step())
    found.push_back({list.integer(0), list.integer(1) != 0, list.integer(2) != 0});
  return found;
}

/// Where the row's stretch begins to supersede earlier ones.
int64_t supersedes_from(Database& database, int64_t id) {
  Statement statement = database.prepare(
      "SELECT t.supersedes_from FROM stretch t JOIN snapshot s ON s.stretch = t.id WHERE s.id = ?");
  statement.bind(1, id);
  return statement.step() ? statement.integer(0) : kFromTheStart;
}

}  // namespace

HistoryCursor::HistoryCursor(const std::string& run_dir) : path_(history_path(run_dir)) {
  with_database([](Database&) {});
}

void HistoryCursor::with_database(const std::function<void(Database&)>& read) const {
  const auto open_and_read = [&](Database::Mode mode) {
    check_files(path_);
    Database database(path_, mode);
    database.set_busy_timeout_ms(kFollowerTimeoutMs);
    database.execute("PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON");
    if (!check_history_schema(database)) {
      throw std::runtime_error(path_ + ": the run history is empty");
    }
    check_definitions(database);
    database.execute("BEGIN");  // all reads see the same state while the run goes on writing
    read(database);
  };
  try {
    try {
      open_and_read(Database::Mode::kReadOnly);
    } catch (const SqliteError& error) {
      if (!error.needs_recovery()) throw;
      // The writer was killed in the middle of a transaction, which has to be undone first.
      open_and_read(Database::Mode::kReadWriteCreate);
    }
  } catch (const SqliteError& error) {
    throw std::runtime_error("cannot read the run history " + std::string(error.what()));
  }
}

RunFacts HistoryCursor::facts() const {
  RunFacts facts;
  with_database([&](Database& database) {
    Statement rows = database.prepare("SELECT key, value FROM run");
    while (rows.step()) facts[rows.text(0)] = rows.text(1);
  });
  return facts;
}

std::vector<std::shared_ptr<const Snapshot>> HistoryCursor::next(size_t rows,
                                                                 int64_t last_segment) {
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
  with_database([&](Database& database) {
    snapshots.clear();
    // A history that was started again counts from 1.
    if (database.integer_of("SELECT coalesce(max(id), 0) FROM snapshot") < last_id_) last_id_ = 0;
    const std::vector<RowId> found = rows_after(database, last_id_, last_segment);
    Statement read =
        database.prepare("SELECT " + std::string(kSnapshotColumns) + " FROM snapshot WHERE id = ?");
    for (const int64_t id : chosen(found, rows)) {
      read.bind(1, id);
      if (read.step()) {
        const auto snapshot = read_snapshot(database, read);
        const int64_t from = supersedes_from(database, id);
        if (from != kFromTheStart) snapshot->segment_start = from;
        snapshots.push_back(snapshot);
      }
      read.run();
    }
    if (!found.empty()) last_id_ = found.back().id;
  });
  return snapshots;
}

}  // namespace headscope::exporter
