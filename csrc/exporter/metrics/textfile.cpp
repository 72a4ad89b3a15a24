#include <cstdio>
#include <stdexcept>
#include <utility>

#include "csrc/exporter/common/atomic_file.h"
#include "csrc/exporter/common/process_bound.h"
#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/health_metrics.h"
#include "csrc/exporter/metrics/run_metrics.h"
#include "csrc/exporter/metrics/text_format.h"
#include "headscope/built_in_sinks.h"

namespace headscope {
namespace exporter {
namespace {

class Textfile : public Sink {
 public:
  explicit Textfile(TextfileOptions options) : options_(std::move(options)) {
    if (!options_.path.ends_with(".prom")) {
      throw std::runtime_error("textfile '" + sanitise_terminal(options_.path) +
                               "' does not end in .prom: node_exporter would not read it");
    }
    write();
  }

  std::string name() const override { return "textfile"; }

  void publish(const std::shared_ptr<const Snapshot>& snapshot) override {
    state_ = state_after(state_, snapshot);
    write();
  }

  /// A run that has ended is no longer scraped; after a kill the file stays and grows stale.
  void close() override { std::remove(options_.path.c_str()); }

 private:
  void write() const {
    const Health health = options_.health ? options_.health()
                          : state_.latest ? state_.latest->health
                                          : Health{};
    replace_atomically(options_.path,
                       serialise(HealthMetrics(health, options_.facts, options_.deadline_tokens)) +
                           serialise(RunMetrics(state_)));
  }

  const TextfileOptions options_;
  ExportState state_;
};

}  // namespace
}  // namespace exporter

std::shared_ptr<Sink> make_textfile(const TextfileOptions& options) {
  return std::make_shared<exporter::ProcessBound<Sink>>(
      std::make_unique<exporter::Textfile>(options));
}

}  // namespace headscope
