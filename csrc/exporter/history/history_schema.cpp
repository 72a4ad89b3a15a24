#include "csrc/exporter/history/history_schema.h"

#include <stdexcept>

namespace headscope::exporter {
namespace {

constexpr int64_t kApplicationId = 0x48534350;  // "HSCP"

constexpr char kTables[] = R"sql(
CREATE TABLE run (
  key TEXT PRIMARY KEY NOT NULL,
  value TEXT NOT NULL
) WITHOUT ROWID;

CREATE TABLE stretch (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  segment INTEGER NOT NULL,
  supersedes_from INTEGER NOT NULL
);

CREATE TABLE snapshot (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  stretch INTEGER NOT NULL REFERENCES stretch (id),
  segment INTEGER NOT NULL,
  step INTEGER NOT NULL,
  source TEXT NOT NULL CHECK (source IN ('train', 'probe')),
  tokens REAL,
  wall_time REAL,
  loss REAL,
  context INTEGER NOT NULL,
  probe_interval INTEGER NOT NULL,
  dtype TEXT NOT NULL,
  integral_axis TEXT NOT NULL,
  controls TEXT NOT NULL,
  patterns TEXT NOT NULL,
  circuits TEXT NOT NULL,
  health TEXT NOT NULL,
  figures BLOB NOT NULL
);
CREATE INDEX snapshot_by_step ON snapshot (step);

CREATE TABLE event (
  snapshot INTEGER NOT NULL REFERENCES snapshot (id),
  ordinal INTEGER NOT NULL,
  step INTEGER NOT NULL,
  kind TEXT NOT NULL,
  pattern TEXT NOT NULL,
  head_level INTEGER NOT NULL,
  detail TEXT NOT NULL,
  PRIMARY KEY (snapshot, ordinal)
) WITHOUT ROWID;

CREATE TABLE ablation (
  snapshot INTEGER NOT NULL REFERENCES snapshot (id),
  ordinal INTEGER NOT NULL,
  step INTEGER NOT NULL,
  pattern TEXT NOT NULL,
  metric TEXT NOT NULL,
  verdict TEXT NOT NULL,
  effect REAL,
  detail TEXT NOT NULL,
  PRIMARY KEY (snapshot, ordinal)
) WITHOUT ROWID;

CREATE TABLE calibration (
  snapshot INTEGER NOT NULL REFERENCES snapshot (id),
  ordinal INTEGER NOT NULL,
  step INTEGER NOT NULL,
  batch TEXT NOT NULL,
  pattern TEXT NOT NULL,
  recall_threshold REAL,
  detail TEXT NOT NULL,
  PRIMARY KEY (snapshot, ordinal)
) WITHOUT ROWID;

CREATE VIEW superseded_snapshot AS
  SELECT s.* FROM snapshot s WHERE EXISTS (
    SELECT 1 FROM stretch t WHERE t.id > s.stretch AND t.supersedes_from <= s.step);
CREATE VIEW current_snapshot AS
  SELECT s.* FROM snapshot s WHERE NOT EXISTS (
    SELECT 1 FROM stretch t WHERE t.id > s.stretch AND t.supersedes_from <= s.step);
CREATE VIEW current_event AS
  SELECT e.* FROM event e JOIN current_snapshot s ON s.id = e.snapshot;
CREATE VIEW current_ablation AS
  SELECT a.* FROM ablation a JOIN current_snapshot s ON s.id = a.snapshot;
CREATE VIEW current_calibration AS
  SELECT c.* FROM calibration c JOIN current_snapshot s ON s.id = c.snapshot;
)sql";

}  // namespace

std::string history_path(const std::string& run_dir) {
  const bool slash = !run_dir.empty() && run_dir.back() == '/';
  return run_dir + (slash ? "" : "/") + kHistoryFile;
}

bool check_history_schema(Database& database) {
  const int64_t version = database.integer_of("PRAGMA user_version");
  const int64_t application = database.integer_of("PRAGMA application_id");
  const int64_t objects = database.integer_of("SELECT count(*) FROM sqlite_master");
  if (version == 0 && application == 0 && objects == 0) return false;
  if (application != kApplicationId) {
    throw std::runtime_error(database.path() +
                             ": this SQLite database is not a headscope history; move it away or "
                             "use another run directory");
  }
  if (version != kHistoryVersion) {
    throw std::runtime_error(database.path() + ": the history has schema version " +
                             std::to_string(version) + ", this headscope knows version " +
                             std::to_string(kHistoryVersion) +
                             "; use the headscope that wrote it or another run directory");
  }
  return true;
}

void create_history_schema(Database& database) {
  Transaction transaction(database);
  database.execute(kTables);
  database.execute("PRAGMA application_id = " + std::to_string(kApplicationId));
  database.execute("PRAGMA user_version = " + std::to_string(kHistoryVersion));
  transaction.commit();
}

}  // namespace headscope::exporter
