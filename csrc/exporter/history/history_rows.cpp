#include "csrc/exporter/history/history_rows.h"

#include <stdexcept>
#include <string>

#include "csrc/exporter/history/blob_codec.h"
#include "csrc/exporter/history/history_json.h"

namespace headscope::exporter {
namespace {

Snapshot snapshot_of(const Statement& row) {
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

}  // namespace

std::shared_ptr<Snapshot> read_snapshot(Database& database, const Statement& row) {
  const int64_t id = row.integer(0);
  try {
    auto snapshot = std::make_shared<Snapshot>(snapshot_of(row));
    read_details(database, "event", id, [&](const std::string& detail) {
      snapshot->events.push_back(event_from_json(detail));
    });
    read_details(database, "ablation", id, [&](const std::string& detail) {
      snapshot->ablations.push_back(ablation_from_json(detail));
    });
    read_details(database, "calibration", id, [&](const std::string& detail) {
      snapshot->calibrations.push_back(calibration_from_json(detail));
    });
    return snapshot;
  } catch (const SqliteError&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(database.path() + ": snapshot " + std::to_string(id) +
                             " is broken: " + error.what());
  }
}

}  // namespace headscope::exporter
