#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "headscope/export.h"
#include "headscope/sink.h"

namespace headscope {

/// Facts about the run that never change: labels of headscope_run_info, rows of the history's table
/// `run`.
using RunFacts = std::map<std::string, std::string>;

enum class LogLevel { kInfo, kWarning };
/// Writes one line of the monitor's log. Called from the training, analysis, sink and server
/// threads, so it must be thread-safe. What it throws is ignored.
using LogFunction = std::function<void(LogLevel, const std::string&)>;

/// By pattern: the tokens by which its circuit should have formed. Shown as
/// headscope_circuit_deadline_tokens, which the alert on a late circuit reads (docs/alerts.md).
using DeadlineTokens = std::map<std::string, double>;

/// Who may read the server's pages, and over what. All off by default. /-/healthy needs no
/// password.
struct AccessOptions {
  std::string user;              ///< of basic authentication; empty: everybody may read
  std::string password_file;     ///< its first line is the password; give this or password_env
  std::string password_env;      ///< name of the environment variable that holds the password
  std::string certificate_file;  ///< PEM with certificate and private key: HTTPS instead of HTTP
};

/// /metrics (docs/metrics.md), the live page (docs/dashboards.md) and its JSON API (docs/api.md)
/// over HTTP.
struct ServerOptions {
  std::string host = "127.0.0.1";  ///< IPv4 address or "localhost"; 0.0.0.0: all interfaces
  int port = 9464;                 ///< 0: any free port
  int ports_to_try = 32;           ///< this and the next ones, until one is free
  int threads = 16;                ///< n stalled clients delay a scrape by n / threads timeouts
  int request_timeout_ms = 2000;   ///< milliseconds
  std::string endpoint_file;       ///< holds the URL while the server runs; empty: no file
  AccessOptions access;
  /// Host names by which requests may call the server, besides IP addresses, "localhost" and the
  /// machine's own names; "*": any. Others are refused: a page elsewhere may have made its name
  /// point here (DNS rebinding).
  std::vector<std::string> host_names;
  std::string run_dir;  ///< where a resumed run's earlier segments are read from; empty: not shown
  bool live = true;     ///< what the page calls the run; false: recorded
  RunFacts facts;
  DeadlineTokens deadline_tokens;
  /// Read at every scrape, on a server thread; must be thread-safe and must not make the training
  /// thread wait. Empty: the health of the latest snapshot is shown.
  std::function<Health()> health;
  LogFunction log;
};

/// A running server; what is published to it is what it shows.
class HEADSCOPE_API MetricsServer : public Sink {
 public:
  /// E.g. "http://127.0.0.1:9464", https with a certificate; the loopback address when all
  /// interfaces are bound. Any thread.
  virtual std::string url() const = 0;
};

/// Starts the server. close() stops it: at once, or within the request timeout when a client is
/// halfway through a request. Throws std::runtime_error naming value and cause: no free port, a
/// host that is no IPv4 address of this machine, a password or certificate that cannot be read, an
/// option out of range.
[[nodiscard]] HEADSCOPE_API std::shared_ptr<MetricsServer> start_metrics_server(
    const ServerOptions& options);

/// The text that answers a scrape for a snapshot (null: before the first one).
HEADSCOPE_API std::string render_metrics(const Snapshot* snapshot, const Health& health,
                                         const RunFacts& facts);

struct RunHistory;
/// The text that answers a scrape at the end of a recorded run.
HEADSCOPE_API std::string render_metrics(const RunHistory& run);

/// The metrics as a file for node_exporter's textfile collector, for machines on which nothing may
/// listen on a port.
struct TextfileOptions {
  std::string path;  ///< must end in .prom; its folder must exist
  RunFacts facts;
  DeadlineTokens deadline_tokens;
  std::function<Health()> health;  ///< as in ServerOptions
};

/// Replaces the file in one step at every snapshot and removes it in close(). Throws
/// std::runtime_error naming path and cause, from here or from publish().
[[nodiscard]] HEADSCOPE_API std::shared_ptr<Sink> make_textfile(const TextfileOptions& options);

/// SQLite run history at `<run_dir>/history.sqlite` (docs/history.md).
struct HistoryOptions {
  std::string run_dir;  ///< created when missing
  RunFacts facts;
  LogFunction log;
  bool assume_network = false;  ///< forces the rollback journal, as on NFS, SMB, FUSE
};

/// Opens or creates the history. Throws std::runtime_error naming path and cause. A write that
/// fails later throws from publish(); up to 64 snapshots wait and are written with the next one.
[[nodiscard]] HEADSCOPE_API std::shared_ptr<Sink> open_history(const HistoryOptions& options);

/// A recorded run.
struct RunHistory {
  RunFacts facts;
  /// In order of step, with their events and ablations.
  std::vector<std::shared_ptr<const Snapshot>> snapshots;
};

/// Reads a run's history without its superseded rows (steps that a resumed run replayed). Throws
/// std::runtime_error naming path and cause.
HEADSCOPE_API RunHistory read_history(const std::string& run_dir);

/// Serves the page of a recorded run, or of one that another process still writes: the history in
/// `options.run_dir` is read again every second, and the facts come from there. Throws like
/// start_metrics_server and read_history.
[[nodiscard]] HEADSCOPE_API std::shared_ptr<MetricsServer> serve_history(
    const ServerOptions& options);

/// What the page shows of a recorded run, as one JSON document (docs/api.md). Throws
/// std::runtime_error naming path and cause.
HEADSCOPE_API std::string report_json(const std::string& run_dir);
/// The page with that document in it: one HTML file that needs no server. Throws alike.
HEADSCOPE_API std::string report_html(const std::string& run_dir);

/// The progress line: step, loss, tokens/s, top heads, circuit states.
struct ProgressOptions {
  int64_t total_steps = 0;            ///< 0: unknown
  int file_descriptor = 2;            ///< where it is written; 2: stderr
  double plain_interval_seconds = 5;  ///< off a terminal: at most one line in this time, but events
};

/// Rewrites the line in place on a terminal, writes plain lines elsewhere. Throws nothing.
[[nodiscard]] HEADSCOPE_API std::shared_ptr<Sink> make_progress_line(
    const ProgressOptions& options);

}  // namespace headscope
