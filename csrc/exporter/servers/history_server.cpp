#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "csrc/exporter/history/history_cursor.h"
#include "csrc/exporter/page/page.h"
#include "csrc/exporter/page/run_api.h"
#include "csrc/exporter/servers/process_bound_server.h"
#include "headscope/built_in_sinks.h"
#include "headscope/process.h"

namespace headscope {
namespace exporter {
namespace {

constexpr std::chrono::milliseconds kReadInterval{1000};
constexpr size_t kRowsAtOnce = 1500;
constexpr size_t kReportFigures = 1'000'000;  // about 10 MB of text at worst

/// Shows what another process writes, as it is written.
class FollowingServer : public MetricsServer {
 public:
  explicit FollowingServer(ServerOptions options) : cursor_(options.run_dir), log_(options.log) {
    options.facts = cursor_.facts();
    options.live = false;
    options.run_dir.clear();  // all of it is read here
    server_ = start_metrics_server(options);
    read();
    const SignalsBlocked blocked;
    thread_ = std::thread([this] { follow(); });
  }
  ~FollowingServer() override { FollowingServer::close(); }

  std::string name() const override { return server_->name(); }
  std::string url() const override { return server_->url(); }
  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    server_->publish(snapshot);
  }
  void close() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
    server_->close();
  }

 private:
  void read() {
    for (const auto& snapshot : cursor_.next(kRowsAtOnce)) server_->publish(snapshot);
  }

  void follow() {
    bool failing = false;
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        if (changed_.wait_for(lock, kReadInterval, [this] { return closing_; })) return;
      }
      try {
        read();
        failing = false;
      } catch (const std::exception& error) {
        if (!std::exchange(failing, true) && log_) log_(LogLevel::kWarning, error.what());
      }
    }
  }

  HistoryCursor cursor_;
  const LogFunction log_;
  std::shared_ptr<MetricsServer> server_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace
}  // namespace exporter

std::shared_ptr<MetricsServer> serve_history(const ServerOptions& options) {
  return std::make_shared<exporter::ProcessBoundServer>(
      std::make_unique<exporter::FollowingServer>(options));
}

std::string report_json(const std::string& run_dir) {
  exporter::HistoryCursor cursor(run_dir);
  exporter::RunApi api({.facts = cursor.facts(), .health = {}, .run_dir = {}, .live = false});
  for (const auto& snapshot : cursor.next(exporter::kRowsAtOnce)) api.publish(snapshot);
  return api.everything(exporter::kReportFigures);
}

std::string report_html(const std::string& run_dir) {
  return exporter::self_contained_page(report_json(run_dir));
}

}  // namespace headscope
