#pragma once

#include <cstdlib>
#include <string>

#include "tests/support/needs.h"
#include "tests/support/system/temporary_directory.h"
#include "tests/support/system/text_file.h"

namespace headscope::testing {

/// What `promtool check metrics` says about a scrape: empty when it parses and lints clean.
inline std::string promtool_complaints(const std::string& metrics) {
  const TemporaryDirectory directory;
  write_text(directory.file("metrics"), metrics);
  const std::string output = directory.file("output");
  const std::string command =
      "promtool check metrics < " + directory.file("metrics") + " > " + output + " 2>&1";
  const int status = std::system(command.c_str());
  if (status == 0) return "";
  return "status " + std::to_string(status) + ": " + read_text(output);
}

}  // namespace headscope::testing

/// For tests that need promtool (Debian package prometheus).
#define HEADSCOPE_NEED_PROMTOOL() HEADSCOPE_NEED_PROGRAM("promtool")
