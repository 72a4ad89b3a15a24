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

/// Facts about the run that never change; labels of headscope_run_info and rows of the history's
/// `run` table.
using RunFacts = std::map<std::string, std::string>;

/// Writes one line of the monitor's own log. Called from the training, analysis, sink and server
/// threads: must be thread-safe. What it throws is swallowed.
enum class LogLevel { kInfo, kWarning };
using LogFunction = std::function<void(LogLevel, const std::string&)>;

/// By pattern: the tokens by which its circuit should have formed. Shown as
/// headscope_circuit_deadline_tokens, which the alert on a late circuit reads (docs/alerts.md).
using DeadlineTokens = std::map<std::string, double>;

/// Who may read the server's pages, and over what. All off by default. /-/healthy needs no
/// password.
struct AccessOptions {
  std::string user;              ///< basic authentication; empty: everybody
  std::string password_file;     ///< its first line is the password; this or
  std::string password_env;      ///< the name of the environment variable that holds it
  std::string certificate_file;  ///< PEM with certificate and private key: HTTPS instead of HTTP
};

/// /metrics (docs/metrics.md), the live page (docs/dashboards.md) and its JSON API (docs/api.md)
/// over HTTP.
struct ServerOptions {
  std::string host = "127.0.0.1";  ///< IPv4 address or "localhost"; 0.0.0.0: all interfaces
  int port = 9464;                 ///< 0: any free port
  int ports_to_try = 32;           ///< taken port: the next ones are tried
  int threads = 16;  ///< n clients that stop halfway delay a scrape by n / threads timeouts
  int request_timeout_ms = 2000;
  std::string endpoint_file;  ///< holds the URL while the server runs; empty: no file
  AccessOptions access;
  /// Names besides IP addresses, "localhost" and the machine's own that requests may call the
  /// server by; "*": any. Others are refused, because a page elsewhere may have made its name point
  /// here.
  std::vector<std::string> host_names;
  std::string run_dir;  ///< where a resumed run's earlier segments are read from; empty: not shown
  bool live = true;     ///< what the page says of the run: false: recorded
  RunFacts facts;
  DeadlineTokens deadline_tokens;
  /// Read at every scrape; must be thread-safe and wait-free for the training thread. Empty: the
  /// health of the latest snapshot is shown.
  std::function<Health()> health;
  LogFunction log;
};

class HEADSCOPE_API MetricsServer : public Sink {
 public:
  /// e.g. "http://127.0.0.1:9464", https with a certificate; names the loopback when all interfaces
  /// are bound.
  virtual std::string url() const = 0;
};

/// Starts the server; throws std::runtime_error that names the value and the cause: no free port, a
/// host that is no IPv4 address of this machine, a password or certificate that cannot be read, an
/// option out of range. close() stops it, at once or within the request timeout when a client is
/// halfway through a request.
HEADSCOPE_API std::shared_ptr<MetricsServer> start_metrics_server(const ServerOptions& options);

/// The text a scrape would answer for a snapshot (null: before the first one). What the server
/// serves, and tests read.
HEADSCOPE_API std::string render_metrics(const Snapshot* snapshot, const Health& health,
                                         const RunFacts& facts);

/// What a scrape would answer at the end of a recorded run.
struct RunHistory;
HEADSCOPE_API std::string render_metrics(const RunHistory& run);

/// The metrics as a file for node_exporter's textfile collector, where nothing may listen on a
/// port.
struct TextfileOptions {
  std::string path;  ///< must end in .prom; its folder must exist
  RunFacts facts;
  DeadlineTokens deadline_tokens;
  std::function<Health()> health;  ///< as in ServerOptions
};

/// Replaces the file in one step at every snapshot and removes it in close(). Throws
/// std::runtime_error naming path and cause, from here or from publish().
HEADSCOPE_API std::shared_ptr<Sink> make_textfile(const TextfileOptions& options);

/// SQLite run history at `<run_dir>/history.sqlite` (docs/history.md).
struct HistoryOptions {
  std::string run_dir;  ///< created when missing
  RunFacts facts;
  LogFunction log;
  bool assume_network = false;  ///< forces the rollback journal, as on NFS, SMB, FUSE
};

/// Opens or creates the history; throws std::runtime_error naming path and cause. A write that
/// fails later throws from publish(); up to 64 snapshots wait and are written with the next one.
HEADSCOPE_API std::shared_ptr<Sink> open_history(const HistoryOptions& options);

/// Reads a run history; superseded rows (replayed steps of an earlier segment) are left out.
/// Throws std::runtime_error naming path and cause.
struct RunHistory {
  RunFacts facts;
  std::vector<std::shared_ptr<const Snapshot>>
      snapshots;  ///< in order of step; events and ablations attached
};
HEADSCOPE_API RunHistory read_history(const std::string& run_dir);

/// Serves the page of a recorded run, or of one that another process still writes: its history in
/// `options.run_dir` is read again every second. Facts come from there; a file or link in the
/// history's place gives a clear error. Throws like start_metrics_server() and read_history().
HEADSCOPE_API std::shared_ptr<MetricsServer> serve_history(const ServerOptions& options);

/// All that the page shows of a recorded run, as one JSON document (docs/api.md), and the page with
/// that in it: one HTML file that needs no server. Throw std::runtime_error naming path and cause.
HEADSCOPE_API std::string report_json(const std::string& run_dir);
HEADSCOPE_API std::string report_html(const std::string& run_dir);

/// One terminal line: step, loss, tokens/s, top heads, circuit states; rewritten in place on a TTY,
/// plain lines elsewhere.
struct ProgressOptions {
  int64_t total_steps = 0;  ///< 0: unknown
  int file_descriptor = 2;
  double plain_interval_seconds = 5;  ///< at most one plain line in this time; events always
};
HEADSCOPE_API std::shared_ptr<Sink> make_progress_line(const ProgressOptions& options);

}  // namespace headscope
