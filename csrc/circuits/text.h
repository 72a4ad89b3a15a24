#pragma once

#include <cstdio>
#include <string>

#include "headscope/snapshot.h"

namespace headscope::circuits {

/// A figure for people: six significant digits.
inline std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

/// "4.1": layer 4, head 1.
inline std::string name_of(HeadId id) {
  return std::to_string(id.layer) + "." + std::to_string(id.head);
}

}  // namespace headscope::circuits
