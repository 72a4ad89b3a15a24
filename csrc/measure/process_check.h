#pragma once

#include <string>

namespace headscope::measure {

/// Whether this copy of headscope can work in this process; throws std::invalid_argument that says
/// why not and what to do. What a second copy and another torch cost is an attach that is refused,
/// never the process.
void check_process();

/// What is wrong with running on a torch whose at::show_config() is `config`, for a library that
/// was built for release `built` ("2.13.0"); empty: nothing, or `config` names no version.
std::string torch_mismatch(const std::string& config, const std::string& built);

}  // namespace headscope::measure
