#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

/// Skips with a reason what needs a tool that this machine lacks. Where CI is set nothing may be
/// lacking: there the test fails.
#define HEADSCOPE_NEED(have, reason)                    \
  if (!(have)) {                                        \
    if (std::getenv("CI") != nullptr) FAIL() << reason; \
    GTEST_SKIP() << reason;                             \
  }

namespace headscope::testing {

inline bool have_program(const std::string& name) {
  return std::system(("command -v " + name + " > /dev/null 2>&1").c_str()) == 0;
}

}  // namespace headscope::testing

/// For tests that start a program of the system.
#define HEADSCOPE_NEED_PROGRAM(name) \
  HEADSCOPE_NEED(headscope::testing::have_program(name), std::string(name) + " is not installed")
