#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>

#include "csrc/exporter/blob_codec.h"
#include "csrc/exporter/file_system.h"
#include "csrc/exporter/history_json.h"
#include "csrc/exporter/history_schema.h"
#include "csrc/exporter/sqlite.h"
#include "headscope/sinks.h"

namespace headscope {
namespace exporter {
namespace {

constexpr int kBusyTimeoutMs = 5000;

Snapshot read_snapshot(const Statement& row) {
  Snapshot snapshot;
  snapshot.segment = row.integer(1);
  snapshot.step = row.integer(2);
  snapshot.source = row.text(3) == to_string(Source::kProbe) ? Source::kProbe : Source::kTrain;
  snapshot.context = row.integer(4);
  snapshot.probe_interval = row.integer(5);
  snapshot.dtype = row.text(6);
  snapshot.integral_axis = row.text(7);
  snapshot.controls = row.text(8);
  snapshot.patterns = names_from_json(row.text(9));
  snapshot.circuits = circuits_from_json(row.text(10));
  snapshot.health = health_from_json(row.text(11));
  decode_figures(row.text(12), snapshot);
  return snapshot;
}

/// Calls read(detail) for the rows of `table` that belong to a snapshot, in order.
template <typename Read>
void read_details(Database& database, const std::string& table, int64_t id, const Read& read) {
  Statement rows =
      database.prepare("SELECT detail FROM " + table + " WHERE snapshot = ? ORDER BY ordinal");
  rows.bind(1, id);
  while (rows.step()) read(rows.text(0));
}

RunHistory read_all(Database& database) {
  RunHistory history;
  database.execute("BEGIN");  // all reads see the same state while the run goes on writing
  Statement facts = database.prepare("SELECT key, value FROM run");
  while (facts.step()) history.facts[facts.text(0)] = facts.text(1);
  Statement rows = database.prepare(
      "SELECT id, segment, step, source, context, probe_interval, dtype, integral_axis, controls, "
      "patterns, circuits, health, figures FROM current_snapshot ORDER BY step, id");
  while (rows.step()) {
    const int64_t id = rows.integer(0);
    try {
      auto snapshot = std::make_shared<Snapshot>(read_snapshot(rows));
      read_details(database, "event", id, [&](const std::string& detail) {
        snapshot->events.push_back(event_from_json(detail));
      });
      read_details(database, "ablation", id, [&](const std::string& detail) {
        snapshot->ablations.push_back(ablation_from_json(detail));
      });
      history.snapshots.push_back(std::move(snapshot));
    } catch (const SqliteError&) {
      throw;
    } catch (const std::runtime_error& error) {
      throw std::runtime_error(database.path() + ": snapshot " + std::to_string(id) +
                               " is broken: " + error.what());
    }
  }
  return history;
}

RunHistory read_file(const std::string& path, Database::Mode mode) {
  Database database(path, mode);
  database.set_busy_timeout_ms(kBusyTimeoutMs);
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
