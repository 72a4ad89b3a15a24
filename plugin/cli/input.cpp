#include "plugin/cli/input.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <iterator>

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
  const int first = first_of_text();
  if (first == '[')
    throw InputError(name_ + ": is a JSON array; give an object with a list of steps, or CSV");
  if (first != '{') return;
  table_.str(table_of_json(*stream_, name_));
  table_.clear();
  stream_ = &table_;
}

int Input::first_of_text() {
  const int first = stream_->peek();
  if (first == 0xFF || first == 0xFE)
    throw InputError(name_ + ": is UTF-16 or binary; save it as UTF-8 text");
  if (first == 0x1F) throw InputError(name_ + ": is compressed or binary; unpack it first");
  if (first != 0xEF && (first > ' ' || first < 0)) return first;
  // Standard input takes one character back at most.
  std::string text(std::istreambuf_iterator<char>(*stream_), {});
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  table_.str(text);
  stream_ = &table_;
  return begin == std::string::npos ? EOF : static_cast<unsigned char>(text[begin]);
}

}  // namespace headscope::cli
