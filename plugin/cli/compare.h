#pragma once

#include <string>

#include "plugin/cli/json_text.h"

namespace headscope::cli {

/// The answer of `headscope compare` as tables for people.
std::string comparison_text(const ordered_json& comparison);

}  // namespace headscope::cli
