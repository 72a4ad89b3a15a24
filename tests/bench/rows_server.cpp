// What being scraped costs: row 14 of the goals, with 1,024 heads and 6 patterns.

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "headscope/built_in_sinks.h"
#include "tests/bench/runner.h"
#include "tests/support/exporter/http_client.h"
#include "tests/support/exporter/sample_snapshot.h"
#include "tests/support/system/child_process.h"

namespace headscope::bench {
namespace {

constexpr int kClients = 200;
constexpr double kStepSeconds = 0.1;  // a model of 1,024 heads takes longer
constexpr int kSteps = 20;

std::shared_ptr<const Snapshot> large_snapshot(int64_t step) {
  testing::SampleShape shape;
  shape.layers = 32;
  shape.heads = 32;
  return testing::shared(testing::sample_snapshot(step, Source::kProbe, shape));
}

std::shared_ptr<MetricsServer> served() {
  ServerOptions options;
  options.port = 0;
  return start_metrics_server(options);
}

/// CPU time of all threads but this one.
double others_cpu_seconds() { return process_cpu_seconds() - thread_cpu_seconds(); }

/// Each scrape is the first one after a new snapshot, which has the text to make.
void scrape_rows(const Emit& emit) {
  const auto server = served();
  const int port = testing::port_of(server->url());
  double best = std::numeric_limits<double>::infinity(), worst = 0, bytes = 0;
  for (int64_t i = 0; i < 12; ++i) {
    server->publish(large_snapshot(i));
    const double start = others_cpu_seconds();
    const testing::HttpAnswer answer = testing::http(port, "/metrics");
    const double seconds = others_cpu_seconds() - start;
    if (answer.status != 200) throw std::runtime_error("a scrape was not answered");
    bytes = static_cast<double>(answer.body.size());
    if (i < 3) continue;  // warm-up
    best = std::min(best, seconds);
    worst = std::max(worst, seconds);
  }
  Row cpu{"14", "one scrape, CPU of the server's threads"};
  cpu.must = 50;
  cpu.aim = 15;
  cpu.smaller_is_better = true;
  cpu.unit = "ms";
  cpu.measured = 1e3 * best;
  cpu.spread = worst / best - 1;
  cpu.roof = "1,024 heads x 6 patterns, a new snapshot each";
  emit(cpu);
  Row size{"14", "one scrape, size"};
  size.must = 5;
  size.smaller_is_better = true;
  size.unit = "MB";
  size.measured = bytes / 1e6;
  size.spread = 0;
  size.roof = "at most 20,000 series of heads are shown";
  emit(size);
}

/// Scrapes without a pause until killed. The clients get what CPU time the server leaves: they
/// stand for other machines.
bool scrape_for_ever(int port) {
  if (nice(19) == -1) return false;
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([port] {
      for (;;) {
        try {
          testing::http(port, "/metrics");
        } catch (const std::exception&) {  // refused: tries again
        }
      }
    });
  }
  for (std::thread& client : clients) client.join();
  return true;
}

int64_t waits_of_this_thread() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

/// A training step's arithmetic, for `seconds` of this thread's CPU time.
double compute(double seconds) {
  volatile double sum = 0;
  const double start = thread_cpu_seconds();
  double used = 0;
  while (used < seconds) {
    for (int i = 1; i < 20000; ++i) sum = sum + 1.0 / i;
    used = thread_cpu_seconds() - start;
  }
  return used;
}

/// A training thread that publishes every step's snapshot itself, which the monitor leaves to a
/// thread of its own. Scheduling apart, its publications may cost CPU but wait for nobody.
Row training_row() {
  const testing::NumberPipe ports;
  testing::ChildProcess clients([&] { return scrape_for_ever(static_cast<int>(ports.receive())); });
  const auto server = served();
  const std::shared_ptr<const Snapshot> snapshots[] = {large_snapshot(1), large_snapshot(2)};
  server->publish(snapshots[0]);
  ports.send(testing::port_of(server->url()));
  double training = 0, publishing = 0, worst = 0, slowest = 0;
  int64_t waits = 0;
  for (int i = 0; i < kSteps; ++i) {
    training += compute(kStepSeconds);
    const double start = thread_cpu_seconds();
    const int64_t waited = waits_of_this_thread();
    const auto wall = std::chrono::steady_clock::now();
    server->publish(snapshots[i % 2]);
    slowest = std::max(
        slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - wall).count());
    waits += waits_of_this_thread() - waited;
    const double cost = thread_cpu_seconds() - start;
    publishing += cost;
    worst = std::max(worst, cost);
  }
  clients.kill();
  Row row{"14", "training thread's extra CPU under 200 parallel scrapes"};
  row.must = 1;
  row.smaller_is_better = true;
  row.unit = "%";
  row.measured = 100 * publishing / training;
  row.spread = worst / (publishing / kSteps) - 1;
  row.roof = "publish() " + std::to_string(1e6 * publishing / kSteps) + " us a step of 100 ms; " +
             std::to_string(waits) + " waits in " + std::to_string(kSteps) +
             " publications, longest " + std::to_string(1e3 * slowest) + " ms of wall time";
  return row;
}

}  // namespace

void server_rows(const Emit& emit) {
  emit(training_row());  // first: its clients are forked while the process has few threads
  scrape_rows(emit);
}

}  // namespace headscope::bench
