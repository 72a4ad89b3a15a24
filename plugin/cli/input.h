#pragma once

#include <fstream>
#include <istream>
#include <sstream>
#include <string>

#include "plugin/cli/csv.h"

namespace headscope::cli {

/// A file opened for reading, or standard input for "-"; published JSON is read as the table that
/// table_of_json makes of it. A byte order mark and blank lines before the text do not count.
/// Throws InputError naming the file and the cause.
class Input {
 public:
  explicit Input(const std::string& file);
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;
  std::istream& stream() { return *stream_; }
  const std::string& name() const { return name_; }

 private:
  /// Of the first line that is not blank, after a byte order mark; EOF: there is none.
  int first_of_text();

  std::ifstream file_;
  std::istringstream table_;
  std::istream* stream_;
  std::string name_;
};

/// Whether a row is of the source that was asked for; files without a `source` column have one
/// source only.
class SourceFilter {
 public:
  SourceFilter(const CsvReader& csv, const std::string& source)
      : column_(csv.find("source")), source_(source) {}
  bool admits(const CsvReader& csv) const {
    return !column_ || source_ == "all" || csv.text(*column_) == source_;
  }

 private:
  std::optional<size_t> column_;
  std::string source_;
};

}  // namespace headscope::cli
