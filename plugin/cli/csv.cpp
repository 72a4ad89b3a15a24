#include "plugin/cli/csv.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <regex>

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

/// "L4_H4", "L4H4" or "4.4", of a head; nullopt when it is none.
std::optional<HeadId> parse_label(const std::string& text) {
  static const std::regex kLabel(R"([lL](\d{1,9})_?[hH](\d{1,9})|(\d{1,9})\.(\d{1,9}))");
  std::smatch parts;
  if (!std::regex_match(text, parts, kLabel)) return std::nullopt;
  const size_t first = parts[1].matched ? 1 : 3;
  return HeadId{static_cast<int32_t>(std::stol(parts[first])),
                static_cast<int32_t>(std::stol(parts[first + 1]))};
}

}  // namespace

CsvReader::CsvReader(std::istream& stream, std::string name)
    : stream_(stream), name_(std::move(name)) {
  if (!next_line(columns_)) throw InputError(name_ + ": empty, expected a line with column names");
  for (auto& column : columns_) {
    if (column.find('\r') != std::string::npos)
      throw InputError(name_ + ": lines end with CR alone; write LF or CRLF");
    column = lower(column);
  }
  for (auto at = columns_.begin(); at != columns_.end(); ++at)
    if (!at->empty() && std::find(columns_.begin(), at, *at) != at)
      throw InputError(name_ + ":" + std::to_string(line_) + ": column '" + shown(*at) +
                       "' is named twice");
  width_ = columns_.size();
  find_places();
  layer_ = find("layer");
  head_ = find("head");
  tokens_ = find("tokens");
  tokens_b_ = find("tokens_b");
}

void CsvReader::find_places() {
  // Bounded: std::regex recurses once for each repetition.
  static const std::regex kCheckpoint(
      R"((?:step[_ ]?)?(\d{1,18})(?:[-_ ]tokens[_ ]?([0-9.]{1,18})b)?)");
  const bool by_head = !find("head");
  if (!by_head && find("step")) return;
  std::vector<std::string> others;
  bool tokens = false;
  for (size_t column = 0; column < columns_.size(); ++column) {
    const std::string& name = columns_[column];
    std::smatch parts;
    if (by_head && parse_label(name)) {
      places_.push_back({column, name, {name}});
    } else if (!by_head && std::regex_match(name, parts, kCheckpoint)) {
      places_.push_back({column, name, {parts[1], parts[2]}});
      tokens |= parts[2].matched;
    } else {
      others.push_back(name);
    }
  }
  if (places_.empty()) return;
  place_ = places_.size();  // no line yet
  columns_ = std::move(others);
  columns_.push_back(by_head ? "head" : "step");
  if (tokens) columns_.emplace_back("tokens_b");
  if (!by_head && !tokens)
    for (Place& place : places_) place.fields.resize(1);
  columns_.emplace_back("value");
}

void CsvReader::next_place() {
  const Place& place = places_[place_++];
  row_.clear();
  auto next = places_.begin();
  for (size_t column = 0; column < line_fields_.size(); ++column) {
    if (next != places_.end() && next->column == column)
      ++next;
    else
      row_.push_back(line_fields_[column]);
  }
  row_.insert(row_.end(), place.fields.begin(), place.fields.end());
  row_.push_back(line_fields_[place.column]);
  columns_.back() = place.name;  // what messages call the value
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
  if (place_ < places_.size()) {
    next_place();
    return true;
  }
  auto& fields = places_.empty() ? row_ : line_fields_;
  if (!next_line(fields)) return false;
  if (fields.size() != width_)
    throw InputError(name_ + ":" + std::to_string(line_) + ": " + std::to_string(fields.size()) +
                     " fields for " + std::to_string(width_) + " columns; the line begins '" +
                     shown(fields.front()) + "'");
  if (places_.empty()) return true;
  place_ = 0;
  next_place();
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

HeadId CsvReader::head() const {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const size_t column = head_ ? *head_ : require("head");
  if (layer_)
    return {static_cast<int32_t>(count(*layer_, kMost)),
            static_cast<int32_t>(count(column, kMost))};
  if (const auto id = parse_label(row_[column])) return *id;
  throw error(column, "is no head; write L4_H4 or 4.4, or give a column 'layer'");
}

double CsvReader::tokens() const {
  const auto column = tokens_ ? tokens_ : tokens_b_;
  if (!column) return kNaN;
  const double value = number(*column);
  if (value < 0) throw error(*column, "is below 0");
  return tokens_ ? value : value * 1e9;
}

InputError CsvReader::error(size_t column, const std::string& what) const {
  return InputError(name_ + ":" + std::to_string(line_) + ": column '" + columns_[column] + "': '" +
                    shown(row_[column]) + "' " + what);
}

}  // namespace headscope::cli
