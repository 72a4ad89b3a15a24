#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headscope::cli {

/// What each command was asked; each function returns the text to print. All throw InputError,
/// std::invalid_argument or std::runtime_error on input that cannot be used.
struct RankArguments {
  std::string file;  ///< "-": standard input
  std::string axis = "ln_tokens";
  double floor_tokens = 1;
  std::optional<int64_t> top;
  std::string source = "probe";
};
std::string rank(const RankArguments& arguments);

struct ReplayArguments {
  std::string file;
  std::optional<int64_t> context;
  std::string rules = "headscope";
  std::string pattern = "induction";  ///< of files without the column
  std::string source = "probe";
};
std::string replay(const ReplayArguments& arguments);

struct ScreenArguments {
  std::string file;
  std::optional<int64_t> step;            ///< the last
  std::optional<std::string> phase = {};  ///< the last row's
  std::optional<int64_t> context;
  std::string rules = "headscope";
  std::optional<int64_t> top;  ///< round(.18 n)
  std::string source = "probe";
  bool json = false;
};
/// A table, or JSON.
std::string screen(const ScreenArguments& arguments);

struct HistoryArguments {
  std::string run_dir;
  bool json = false;
  std::string source = "probe";  ///< "all": no choice
};
std::string history(const HistoryArguments& arguments);

struct DrawsArguments {
  std::vector<std::string> specs;  ///< "4:4,7:0"; several in one text are separated by ';'
  int64_t heads = 0;               ///< of each layer
  std::optional<int64_t> layers;   ///< of the model; not known: any
  std::vector<int64_t> seeds = {123};
  bool sweep = false;  ///< one generator for all specs of a seed, in their order
};
/// The reference's matched-random sets.
std::string draws(const DrawsArguments& arguments);

struct CompareArguments {
  std::vector<std::string> runs = {};        ///< run directories
  std::vector<std::string> references = {};  ///< run directories whose dates make the bands
  std::vector<int64_t> shifts = {};          ///< steps at which new data begins, in all of `runs`
  double band_factor = 2;                    ///< width of the band of one reference run
  std::optional<double> batch = {};          ///< sequences of a training step, for the prior
  std::optional<double> context = {};        ///< tokens of a training sequence, for the prior
  bool force = false;                        ///< goes on where definitions differ
  bool json = false;
};
/// Circuits, dates and integrals of several runs side by side.
std::string compare(const CompareArguments& arguments);

struct MetricsArguments {
  std::string run_dir;
};
/// The Prometheus text of the run's end.
std::string metrics(const MetricsArguments& arguments);

struct ServeArguments {
  std::string run_dir;
  std::string host = "127.0.0.1";
  int port = 9464;  ///< taken: the next free one; 0: any
  std::vector<std::string> host_names;
};
/// Prints the page's address and serves it until SIGINT or SIGTERM; returns nothing to print.
std::string serve(const ServeArguments& arguments);

struct ReportArguments {
  std::string run_dir;
  std::string html;  ///< written in one step; empty: the page is the text to print
  bool json = false;
};
std::string report(const ReportArguments& arguments);

}  // namespace headscope::cli
