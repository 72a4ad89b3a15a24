#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace headscope::fuzz {

/// Ends the process, which libFuzzer takes for a crash and keeps the input of.
inline void require(bool good, const char* rule, const std::string& seen) {
  if (good) return;
  std::fprintf(stderr, "broken rule: %s\n%s\n", rule, seen.substr(0, 4000).c_str());
  std::abort();
}

}  // namespace headscope::fuzz
