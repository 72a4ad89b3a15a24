#pragma once

#include <cstdlib>

namespace headscope::testing {

/// HEADSCOPE_LONG=1 asks for the long forms of tests.
inline bool run_long_tests() { return std::getenv("HEADSCOPE_LONG") != nullptr; }

}  // namespace headscope::testing
