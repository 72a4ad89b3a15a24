#include "plugin/cli/input.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "plugin/cli/trajectory_json.h"

namespace headscope::cli {

Input::Input(const std::string& file)
    : stream_(file == "-" ? &std::cin : &file_), name_(file == "-" ? "<stdin>" : file) {
  if (file != "-") {
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored))
      throw InputError(file + ": is a directory, give a CSV file");
    file_.open(file);
    if (!file_) throw InputError(file + ": cannot be read: " + std::strerror(errno));
  }
  if (stream_->peek() != '{') return;
  table_.str(table_of_json(*stream_, name_));
  stream_ = &table_;
}

}  // namespace headscope::cli
