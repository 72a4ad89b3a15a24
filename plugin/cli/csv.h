#pragma once

#include <cstdint>
#include <istream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "headscope/snapshot.h"

namespace headscope::cli {

/// Something wrong with the input; what() names the file and, within one, line, column and value.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads comma-separated values row by row, columns by name.
///
/// The first line that is neither blank nor a '#' comment names the columns (letter case does not
/// count). Fields may be quoted ("" is a quote) but not span lines; a byte order mark, CRLF line
/// ends and blanks around fields are accepted.
///
/// A wide table is read as a long one: of columns that name checkpoints ("200", "step200",
/// "step1000-tokens2B"; in a file without a column `step`) or heads ("L4_H4", "4.4"; without a
/// column `head`) each gives a row of its own, with the columns `step` and where known `tokens_b`,
/// or `head`, and `value` in their place.
class CsvReader {
 public:
  /// name: the file, for messages. Throws InputError without a header or on a column named twice.
  CsvReader(std::istream& stream, std::string name);

  /// Number of a column, if the file has it.
  std::optional<size_t> find(const std::string& column) const;
  /// The same; throws InputError naming the columns that are there.
  size_t require(const std::string& column) const;

  /// Goes to the next row; false at the end. Throws InputError on a row of another width or an open
  /// quote.
  bool next();
  const std::string& text(size_t column) const { return row_[column]; }
  /// A number; an empty field, NA, null, none and nan are NaN, inf is infinite.
  double number(size_t column) const;
  /// A whole number of 0 or more, at most `most` ("200.0" is one).
  int64_t count(size_t column, int64_t most) const;
  /// Of the columns `layer` and `head`; without `layer` the head is a label, "L4_H4" or "4.4".
  HeadId head() const;
  /// Of the column `tokens`, or of `tokens_b`, which counts billions; NaN without either.
  double tokens() const;
  bool has_tokens() const { return tokens_ || tokens_b_; }
  /// An error about a field of the present row.
  InputError error(size_t column, const std::string& what) const;

 private:
  /// A column of a wide table that stands for a checkpoint or a head.
  struct Place {
    size_t column;
    std::string name;
    std::vector<std::string> fields;  ///< what it says in the long table
  };

  bool next_line(std::vector<std::string>& fields);
  std::vector<std::string> split(std::string line) const;
  void find_places();
  void next_place();

  std::istream& stream_;
  std::string name_;
  int64_t line_ = 0;
  std::vector<std::string> columns_;
  std::vector<std::string> row_;
  std::optional<size_t> layer_, head_, tokens_, tokens_b_;
  std::vector<Place> places_;  // of a wide table
  size_t place_ = 0;           // the next one of the present line
  std::vector<std::string> line_fields_;
  size_t width_ = 0;  // columns of a line
};

}  // namespace headscope::cli
