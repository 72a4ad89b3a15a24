#include "headscope/built_in_sinks.h"
#include "plugin/cli/commands.h"

namespace headscope::cli {

std::string metrics(const MetricsArguments& arguments) {
  return render_metrics(read_history(arguments.run_dir));
}

}  // namespace headscope::cli
