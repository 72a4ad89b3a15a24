#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace headscope::demo {

enum class MonitorMode { kOn, kIdle, kOff };
/// "on", "idle" or "off", as the command line says it.
const char* to_string(MonitorMode mode);

/// What the command line says.
struct DemoOptions {
  int64_t layers = 2;
  int64_t heads = 8;
  int64_t width = 128;
  int64_t context = 64;
  int64_t batch = 16;
  int64_t steps = 1500;
  uint64_t seed = 0;
  double learning_rate = 5e-3;
  double repeat_share = 0.5;
  double budget = 0;   ///< share of wall time that measuring may take; 0: a fixed schedule
  int threads = 0;     ///< 0: two, or one on a single core
  std::string corpus;  ///< empty: the text that comes with the example
  MonitorMode monitor = MonitorMode::kOn;
  std::string host = "127.0.0.1";
  int port = 9464;
  std::string user;                ///< empty: everybody may read the server
  std::string password_file;       ///< of the user
  std::string certificate;         ///< empty: HTTP
  std::string textfile;            ///< empty: none
  double deadline_tokens = 0;      ///< by which induction should have formed; 0: none
  std::string run_dir;             ///< empty: a new folder under runs/
  std::string summary;             ///< empty: no JSON
  int64_t checkpoint_every = 200;  ///< steps; 0: never
  bool resume = false;             ///< go on from the run directory's checkpoint
  std::string resume_command;      ///< the command line that would resume this run
  bool quiet = false;
  int64_t inject_nan_at = -1;  ///< test hook: a weight becomes NaN before this step
  bool omit_bias = false;      ///< test hook: the tap is not told of the position bias
};

/// Parses the command line. Returns nothing when the program should end with `exit_code`: 0 after
/// --help, 2 after arguments that cannot be meant, which are named on stderr together with the fix.
std::optional<DemoOptions> parse_options(int argc, const char* const* argv, int& exit_code);

}  // namespace headscope::demo
