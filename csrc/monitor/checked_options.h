#pragma once

#include "headscope/options.h"

namespace headscope {

/// Refuses a process that this copy of headscope cannot work in and options that cannot be meant
/// (std::invalid_argument naming the value), and fills the default log and clock.
Options checked_options(Options options);

}  // namespace headscope
