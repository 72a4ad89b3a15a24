#include "plugin/cli/input.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

namespace headscope::cli {

Input::Input(const std::string& file) : name_(file == "-" ? "<stdin>" : file) {
  if (file == "-") return;
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    throw InputError(file + ": is a directory, give a CSV file");
  file_.open(file);
  if (!file_) throw InputError(file + ": cannot be read: " + std::strerror(errno));
}

std::istream& Input::stream() { return name_ == "<stdin>" ? std::cin : file_; }

}  // namespace headscope::cli
