#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "csrc/exporter/http/http_server.h"
#include "csrc/exporter/page/timeline.h"
#include "headscope/built_in_sinks.h"

namespace headscope::exporter {

/// What the JSON API says of a run (docs/api.md): the routes below /api/v1/. Answers from memory;
/// the first request reads what an earlier process wrote of the same run. Thread-safe.
class RunApi {
 public:
  struct Options {
    RunFacts facts;
    std::function<Health()> health;  ///< empty: that of the newest snapshot
    std::string run_dir;             ///< holds the history of earlier segments; empty: none
    bool live = true;                ///< false: a recorded run
  };

  explicit RunApi(Options options);

  void publish(const std::shared_ptr<const Snapshot>& snapshot) { timeline_.append(snapshot); }

  static bool knows(const std::string& path);
  /// The answer to a GET or HEAD of a path that it knows.
  HttpResponse answer(const HttpRequest& request);

  /// All that the page shows, as one document with the figures of all heads at up to
  /// `figures` values in all.
  std::string everything(size_t figures);

 private:
  std::string run_json();
  std::string snapshots_json(const std::string& query);
  std::string events_json(const std::string& query);
  void read_earlier_segments();

  const Options options_;
  const std::string instance_;
  Timeline timeline_;
  std::mutex reading_;
  bool read_ = false;
};

}  // namespace headscope::exporter
