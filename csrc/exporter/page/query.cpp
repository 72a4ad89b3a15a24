#include "csrc/exporter/page/query.h"

#include <charconv>
#include <set>

#include "csrc/exporter/common/sanitise.h"

namespace headscope::exporter {
namespace {

constexpr uint64_t kLargestCursor = uint64_t{1} << 53;  // what JavaScript counts exactly
constexpr uint64_t kMostPoints = 2000;
constexpr size_t kLongestEcho = 60;

[[noreturn]] void refuse(std::string_view name, std::string_view value, const std::string& rule) {
  throw BadQuery(std::string(name) + " is '" +
                 sanitise_terminal(std::string(value.substr(0, kLongestEcho))) + "'; it must be " +
                 rule);
}

std::optional<uint64_t> whole_number(std::string_view text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool all = error == std::errc() && end == text.data() + text.size();
  if (!all || value < least || value > most) return std::nullopt;
  return value;
}

HeadId head_of(std::string_view text) {
  const size_t dot = text.find('.');
  if (dot != std::string_view::npos) {
    const auto layer = whole_number(text.substr(0, dot), 0, INT32_MAX);
    const auto head = whole_number(text.substr(dot + 1), 0, INT32_MAX);
    if (layer && head) return {static_cast<int32_t>(*layer), static_cast<int32_t>(*head)};
  }
  refuse("head", text, "LAYER.HEAD, two whole numbers from 0, e.g. 1.4");
}

uint64_t number_of(std::string_view name, std::string_view text, uint64_t least, uint64_t most) {
  const auto value = whole_number(text, least, most);
  if (!value) {
    refuse(name, text,
           "a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return *value;
}

bool is_one_of(std::string_view name, std::string_view known) {
  while (!known.empty()) {
    const size_t end = known.find(' ');
    if (known.substr(0, end) == name) return true;
    known = end == std::string_view::npos ? "" : known.substr(end + 1);
  }
  return false;
}

}  // namespace

Query parse_query(std::string_view text, std::string_view known) {
  Query query;
  std::set<std::string_view> seen;
  while (!text.empty()) {
    const size_t end = text.find('&');
    const std::string_view part = text.substr(0, end);
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
    const size_t equals = part.find('=');
    const std::string_view name = part.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : part.substr(equals + 1);
    if (!is_one_of(name, known)) {
      refuse("a parameter", name, known.empty() ? "left out" : "one of: " + std::string(known));
    }
    if (!seen.insert(name).second) refuse(name, value, "given once");
    if (name == "since") query.since = number_of(name, value, 0, kLargestCursor);
    if (name == "points") query.points = number_of(name, value, 2, kMostPoints);
    if (name == "head") query.head = head_of(value);
  }
  return query;
}

}  // namespace headscope::exporter
