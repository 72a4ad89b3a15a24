#include <filesystem>
#include <utility>

#include "csrc/monitor/checked_options.h"
#include "csrc/monitor/monitor_impl.h"
#include "headscope/built_in_sinks.h"

namespace headscope {

// The composition root: the one place that names concrete sinks.
std::shared_ptr<Monitor> Monitor::attach(Options options) {
  options = checked_options(std::move(options));
  const std::filesystem::path run_dir = std::filesystem::path(options.run_dir).lexically_normal();
  if (options.run_name.empty()) {
    options.run_name =
        (run_dir.has_filename() ? run_dir : run_dir.parent_path()).filename().string();
    if (options.run_name.empty()) options.run_name = "run";
  }
  const RunFacts facts{{"run", options.run_name}};
  const auto health = std::make_shared<HealthCounters>();
  FaultGate gate(options.log, *health);

  std::vector<std::shared_ptr<Sink>> sinks = options.sinks;
  std::string url;
  if (!options.run_dir.empty()) {
    gate.guarded(Fault::kHistory, [&] {
      sinks.push_back(
          open_history({.run_dir = options.run_dir, .facts = facts, .log = options.log}));
    });
  }
  if (options.serve) {
    gate.guarded(Fault::kServer, [&] {
      ServerOptions server;
      server.host = options.host;
      server.port = options.port;
      if (std::filesystem::is_directory(run_dir))
        server.endpoint_file = (run_dir / "endpoint").string();
      server.access = options.access;
      server.host_names = options.host_names;
      server.run_dir = options.run_dir;
      server.facts = facts;
      server.deadline_tokens = options.deadline_tokens;
      server.health = [health] { return health->read(); };
      server.log = options.log;
      const auto started = start_metrics_server(server);
      url = started->url();
      sinks.push_back(started);
    });
  }
  if (!options.textfile.empty()) {
    gate.guarded(Fault::kSink, [&] {
      sinks.push_back(make_textfile({.path = options.textfile,
                                     .facts = facts,
                                     .deadline_tokens = options.deadline_tokens,
                                     .health = [health] { return health->read(); }}));
    });
  }
  if (options.progress) sinks.push_back(make_progress_line({.total_steps = options.total_steps}));

  std::shared_ptr<Monitor> monitor(new Monitor(std::move(options), std::move(sinks), health));
  monitor->impl_->url = url;
  return monitor;
}

}  // namespace headscope
