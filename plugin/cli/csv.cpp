#include "plugin/cli/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace headscope::cli {
namespace {

constexpr double kExactWhole = 9007199254740992;  // 2^53

std::string lower(std::string text) {
  for (char& c : text)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return text;
}

std::string trimmed(const std::string& text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// A value as messages show it: at most 60 bytes, without control characters.
std::string shown(const std::string& text) {
  std::string clean = text.substr(0, 60);
  for (char& c : clean)
    if (static_cast<unsigned char>(c) < ' ' || c == 127) c = '?';
  return clean + (text.size() > 60 ? "..." : "");
}

bool stands_for_nothing(const std::string& text) {
  const std::string word = lower(text);
  for (const char* nothing : {"", "na", "n/a", "nan", "-nan", "null", "none"})
    if (word == nothing) return true;
  return false;
}

/// nullopt when the whole text is no number.
std::optional<double> parse(const std::string& text) {
  const char* begin = text.c_str();
  const char* end = begin + text.size();
  if (text.size() > 1 && *begin == '+' && text[1] != '-') ++begin;
  double value = 0;
  const auto result = std::from_chars(begin, end, value);
  if (result.ptr != end || result.ec == std::errc::invalid_argument) return std::nullopt;
  // Too large or too small for double: strtod says infinity or 0.
  return result.ec == std::errc::result_out_of_range ? std::strtod(begin, nullptr) : value;
}

}  // namespace

CsvReader::CsvReader(std::istream& stream, std::string name)
    : stream_(stream), name_(std::move(name)) {
  if (!next_line(columns_)) throw InputError(name_ + ": empty, expected a line with column names");
  for (auto& column : columns_) column = lower(column);
  for (auto at = columns_.begin(); at != columns_.end(); ++at)
    if (!at->empty() && std::find(columns_.begin(), at, *at) != at)
      throw InputError(name_ + ":" + std::to_string(line_) + ": column '" + shown(*at) +
                       "' is named twice");
}

std::optional<size_t> CsvReader::find(const std::string& column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  if (found == columns_.end()) return std::nullopt;
  return static_cast<size_t>(found - columns_.begin());
}

size_t CsvReader::require(const std::string& column) const {
  if (const auto found = find(column)) return *found;
  std::string there;
  for (const auto& name : columns_) there += (there.empty() ? "" : ", ") + shown(name);
  throw InputError(name_ + ":" + std::to_string(line_) + ": no column '" + column +
                   "'; the columns are: " + there);
}

bool CsvReader::next() {
  if (!next_line(row_)) return false;
  if (row_.size() != columns_.size())
    throw InputError(name_ + ":" + std::to_string(line_) + ": " + std::to_string(row_.size()) +
                     " fields for " + std::to_string(columns_.size()) +
                     " columns; the line begins '" + shown(row_.front()) + "'");
  return true;
}

bool CsvReader::next_line(std::vector<std::string>& fields) {
  std::string line;
  while (std::getline(stream_, line)) {
    if (++line_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
    if (line.ends_with('\r')) line.pop_back();
    const std::string content = trimmed(line);
    if (content.empty() || content.starts_with('#')) continue;
    fields = split(std::move(line));
    return true;
  }
  if (stream_.bad())
    throw InputError(name_ + ": reading failed after line " + std::to_string(line_));
  return false;
}

std::vector<std::string> CsvReader::split(std::string line) const {
  std::vector<std::string> fields;
  size_t at = 0;
  while (true) {
    at = std::min(line.find_first_not_of(" \t", at), line.size());
    std::string field;
    if (at < line.size() && line[at] == '"') {
      for (++at;; ++at) {
        if (at >= line.size())
          throw InputError(name_ + ":" + std::to_string(line_) + ": the quote of '" + shown(field) +
                           "' is not closed");
        if (line[at] == '"' && (at + 1 >= line.size() || line[at + 1] != '"')) break;
        if (line[at] == '"') ++at;
        field += line[at];
      }
      at = std::min(line.find_first_not_of(" \t", at + 1), line.size());
      if (at < line.size() && line[at] != ',')
        throw InputError(name_ + ":" + std::to_string(line_) + ": text after the quoted field '" +
                         shown(field) + "'");
    } else {
      const size_t end = std::min(line.find(',', at), line.size());
      field = trimmed(line.substr(at, end - at));
      at = end;
    }
    fields.push_back(std::move(field));
    if (at >= line.size()) return fields;
    ++at;
  }
}

double CsvReader::number(size_t column) const {
  if (stands_for_nothing(row_[column])) return kNaN;
  if (const auto value = parse(row_[column])) return *value;
  throw error(column, "is not a number");
}

int64_t CsvReader::count(size_t column, int64_t most) const {
  const auto value = parse(row_[column]);
  if (!value || *value != std::floor(*value) || !(std::abs(*value) <= kExactWhole))
    throw error(column, "is not a whole number");
  if (*value < 0 || *value > static_cast<double>(most))
    throw error(column, "is not in 0.." + std::to_string(most));
  return static_cast<int64_t>(*value);
}

HeadId CsvReader::head(size_t layer_column, size_t head_column) const {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return {static_cast<int32_t>(count(layer_column, kMost)),
          static_cast<int32_t>(count(head_column, kMost))};
}

InputError CsvReader::error(size_t column, const std::string& what) const {
  return InputError(name_ + ":" + std::to_string(line_) + ": column '" + columns_[column] + "': '" +
                    shown(row_[column]) + "' " + what);
}

}  // namespace headscope::cli
