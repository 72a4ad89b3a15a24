#include <algorithm>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "csrc/exporter/common/process_bound.h"
#include "csrc/exporter/history/blob_codec.h"
#include "csrc/exporter/history/file_system.h"
#include "csrc/exporter/history/history_json.h"
#include "csrc/exporter/history/history_schema.h"
#include "csrc/exporter/history/sqlite.h"
#include "headscope/built_in_sinks.h"

namespace headscope {
namespace exporter {
namespace {

constexpr int kWriterTimeoutMs = 2000;
constexpr int kBusyTimeoutAtCloseMs = 300;
constexpr size_t kMaxWaiting = 64;  // snapshots kept while the disk is full

void create_run_directory(const std::string& run_dir) {
  std::error_code error;
  std::filesystem::create_directories(run_dir, error);
  if (run_dir.empty() || error || !std::filesystem::is_directory(run_dir)) {
    throw std::runtime_error("cannot create run directory '" + run_dir +
                             "': " + (error ? error.message() : std::string("not a directory")) +
                             "; name a directory that can be written");
  }
}

class History : public Sink {
 public:
  explicit History(const HistoryOptions& options) : options_(options) {
    try {
      open();
    } catch (const SqliteError& error) {
      throw std::runtime_error("cannot open the run history " + std::string(error.what()) +
                               "; move the file away or use another run directory");
    }
  }

  ~History() override {
    try {
      History::close();
    } catch (const std::exception& error) {
      log(LogLevel::kWarning, error.what());
    }
  }

  std::string name() const override { return "history"; }

  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    if (closed_) throw std::runtime_error("the run history is closed");
    waiting_.push_back(snapshot);
    write_waiting();
  }

  void close() override {
    if (closed_) return;
    closed_ = true;
    const size_t unwritten = waiting_.size();
    try {
      if (!waiting_.empty()) reopen_when_removed();
      if (!database_) return;
      database_->set_busy_timeout_ms(kBusyTimeoutAtCloseMs);
      while (!waiting_.empty()) write_first(*database_);
      // A finished history is one plain file, readable from any medium. A reader may be in the way;
      // then the log stays beside it.
      database_->execute("PRAGMA journal_mode = DELETE");
    } catch (const std::runtime_error& error) {
      database_.reset();
      if (waiting_.empty()) return;
      throw std::runtime_error("the run history lacks its last snapshots (" +
                               std::to_string(unwritten) + "): " + error.what());
    }
    database_.reset();
  }

 private:
  /// Snapshots of one opening and one segment: a later stretch supersedes the steps that it
  /// measures again.
  struct Stretch {
    int64_t id = 0;
    int64_t segment = 0;
    int64_t supersedes_from = 0;
  };

  void open() {
    create_run_directory(options_.run_dir);
    check_regular_file(path_);
    auto database = std::make_unique<Database>(path_, Database::Mode::kReadWriteCreate);
    database->set_busy_timeout_ms(kWriterTimeoutMs);
    const bool exists = check_history_schema(*database);
    const bool network = options_.assume_network || on_network_file_system(options_.run_dir);
    const std::string wanted = network ? "delete" : "wal";
    const std::string mode = database->text_of("PRAGMA journal_mode = " + wanted);
    database->execute("PRAGMA synchronous = NORMAL");
    if (!exists) create_history_schema(*database);
    had_run_ = database->integer_of("SELECT count(*) FROM stretch") > 0;
    Transaction transaction(*database);
    write_facts(*database);
    transaction.commit();
    database_ = std::move(database);
    log(LogLevel::kInfo, "writing the run history to " + path_ + " (journal mode " + mode + ")");
  }

  void write_facts(Database& database) const {
    Statement insert = database.prepare("INSERT OR REPLACE INTO run (key, value) VALUES (?, ?)");
    for (const auto& [key, value] : options_.facts) {
      insert.bind(1, std::string_view(key)).bind(2, std::string_view(value)).run();
    }
  }

  /// SQLite would go on writing into a file that nobody can open any more.
  void reopen_when_removed() {
    std::error_code unknown;
    const bool there = std::filesystem::exists(path_, unknown) || unknown;
    if (database_ && there) return;
    if (database_) {
      log(LogLevel::kWarning, path_ + " was removed or moved away; starting it again");
    }
    database_.reset();
    stretch_.reset();
    open();
  }

  void write_waiting() {
    std::string cause;
    size_t lost = 0;
    try {
      reopen_when_removed();
      while (!waiting_.empty()) write_first(*database_);
      return;
    } catch (const SqliteError& error) {
      cause = error.what();
      if (!error.may_pass()) {
        waiting_.pop_front();
        ++lost;
      }
    } catch (const std::runtime_error& error) {
      cause = error.what();
    }
    for (; waiting_.size() > kMaxWaiting; ++lost) waiting_.pop_front();
    throw std::runtime_error("cannot write the run history: " + cause + "; " +
                             std::to_string(waiting_.size()) +
                             " snapshots wait for the next try, " + std::to_string(lost) + " lost");
  }

  void write_first(Database& database) {
    Transaction transaction(database);
    const Snapshot& snapshot = *waiting_.front();
    const Stretch stretch = write_stretch(database, snapshot);
    write_snapshot(database, snapshot, stretch.id);
    transaction.commit();
    stretch_ = stretch;
    waiting_.pop_front();
  }

  /// A snapshot of events alone belongs to the end of its step, whose readings it does not replace.
  static int64_t first_superseded(const Snapshot& snapshot) {
    const int64_t measured = snapshot.heads.empty() ? snapshot.step + 1 : snapshot.step;
    return snapshot.segment_start < 0 ? measured : std::min(measured, snapshot.segment_start);
  }

  Stretch write_stretch(Database& database, const Snapshot& snapshot) const {
    if (stretch_ && stretch_->segment == snapshot.segment) {
      Stretch same = *stretch_;
      if (const int64_t from = first_superseded(snapshot); from < same.supersedes_from) {
        same.supersedes_from = from;
        database.prepare("UPDATE stretch SET supersedes_from = ? WHERE id = ?")
            .bind(1, same.supersedes_from)
            .bind(2, same.id)
            .run();
      }
      return same;
    }
    // Segment 0 is a run from the start: in a used directory it continues nothing that lies there.
    const bool new_run = !stretch_ && had_run_ && snapshot.segment == 0;
    Stretch next{0, snapshot.segment, new_run ? kFromTheStart : first_superseded(snapshot)};
    database.prepare("INSERT INTO stretch (segment, supersedes_from) VALUES (?, ?)")
        .bind(1, next.segment)
        .bind(2, next.supersedes_from)
        .run();
    next.id = database.last_row_id();
    if (new_run) {
      database.execute("DELETE FROM run");
      write_facts(database);
      log(LogLevel::kWarning, database.path() +
                                  " holds an earlier run; its rows are kept and marked as "
                                  "superseded by this one");
    }
    return next;
  }

  static void write_snapshot(Database& database, const Snapshot& snapshot, int64_t stretch) {
    database
        .prepare(
            "INSERT INTO snapshot (stretch, segment, step, source, tokens, wall_time, loss, "
            "context, probe_interval, dtype, integral_axis, controls, patterns, circuits, health, "
            "figures) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
        .bind(1, stretch)
        .bind(2, snapshot.segment)
        .bind(3, snapshot.step)
        .bind(4, std::string_view(to_string(snapshot.source)))
        .bind(5, snapshot.tokens)
        .bind(6, snapshot.wall_time)
        .bind(7, snapshot.loss)
        .bind(8, snapshot.context)
        .bind(9, snapshot.probe_interval)
        .bind(10, std::string_view(snapshot.dtype))
        .bind(11, std::string_view(snapshot.integral_axis))
        .bind(12, std::string_view(snapshot.controls))
        .bind(13, std::string_view(to_json(snapshot.patterns)))
        .bind(14, std::string_view(to_json(snapshot.circuits)))
        .bind(15, std::string_view(to_json(snapshot.health)))
        .bind_blob(16, encode_figures(snapshot))
        .run();
    const int64_t id = database.last_row_id();
    write_events(database, snapshot, id);
    write_ablations(database, snapshot, id);
    write_calibrations(database, snapshot, id);
  }

  static void write_events(Database& database, const Snapshot& snapshot, int64_t id) {
    Statement insert = database.prepare(
        "INSERT INTO event (snapshot, ordinal, step, kind, pattern, head_level, detail) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)");
    for (size_t i = 0; i < snapshot.events.size(); ++i) {
      const Event& event = snapshot.events[i];
      insert.bind(1, id)
          .bind(2, static_cast<int64_t>(i))
          .bind(3, event.step)
          .bind(4, std::string_view(event.kind))
          .bind(5, std::string_view(event.pattern))
          .bind(6, static_cast<int64_t>(event.head_level))
          .bind(7, std::string_view(to_json(event)))
          .run();
    }
  }

  static void write_ablations(Database& database, const Snapshot& snapshot, int64_t id) {
    Statement insert = database.prepare(
        "INSERT INTO ablation (snapshot, ordinal, step, pattern, metric, verdict, effect, detail) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)");
    for (size_t i = 0; i < snapshot.ablations.size(); ++i) {
      const AblationReport& report = snapshot.ablations[i];
      insert.bind(1, id)
          .bind(2, static_cast<int64_t>(i))
          .bind(3, report.step)
          .bind(4, std::string_view(report.pattern))
          .bind(5, std::string_view(report.metric))
          .bind(6, std::string_view(to_string(report.verdict)))
          .bind(7, report.effect)
          .bind(8, std::string_view(to_json(report)))
          .run();
    }
  }

  static void write_calibrations(Database& database, const Snapshot& snapshot, int64_t id) {
    Statement insert = database.prepare(
        "INSERT INTO calibration (snapshot, ordinal, step, batch, pattern, recall_threshold, "
        "detail) VALUES (?, ?, ?, ?, ?, ?, ?)");
    for (size_t i = 0; i < snapshot.calibrations.size(); ++i) {
      const NullCalibration& null = snapshot.calibrations[i];
      insert.bind(1, id)
          .bind(2, static_cast<int64_t>(i))
          .bind(3, null.step)
          .bind(4, std::string_view(null.batch))
          .bind(5, std::string_view(null.pattern))
          .bind(6, null.recall_threshold)
          .bind(7, std::string_view(to_json(null)))
          .run();
    }
  }

  void log(LogLevel level, const std::string& line) const {
    if (options_.log) options_.log(level, line);
  }

  const HistoryOptions options_;
  const std::string path_ = history_path(options_.run_dir);
  std::unique_ptr<Database> database_;  // null: removed, and not open again yet; or closed
  bool closed_ = false;
  bool had_run_ = false;
  std::optional<Stretch> stretch_;  // of this opening, once it has written
  std::deque<std::shared_ptr<const Snapshot>> waiting_;
};

}  // namespace
}  // namespace exporter

std::shared_ptr<Sink> open_history(const HistoryOptions& options) {
  return std::make_shared<exporter::ProcessBound<Sink>>(
      std::make_unique<exporter::History>(options));
}

}  // namespace headscope
