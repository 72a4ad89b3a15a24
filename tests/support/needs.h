#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

/// Skips with a reason what needs a tool that this machine lacks. Where CI is set nothing may be
/// lacking: there the test fails.
#define HEADSCOPE_NEED(have, reason)                    \
  if (!(have)) {                                        \
    if (std::getenv("CI") != nullptr) FAIL() << reason; \
    GTEST_SKIP() << reason;                             \
  }
