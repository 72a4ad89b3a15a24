#include "csrc/exporter/common/sanitise.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <set>

namespace headscope::exporter {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kEllipsis = "...";

/// Length of the valid, printable UTF-8 character at the start of `text`, 0 when there is none.
size_t printable_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7F ? 1 : 0;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  uint32_t point = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool overlong = point < kSmallest[length];
  const bool surrogate = point >= 0xD800 && point <= 0xDFFF;
  const bool control = point < 0xA0;
  return overlong || surrogate || control || point > 0x10FFFF ? 0 : length;
}

/// Lower-case letters, digits and '_' only: capitals would break the naming rules that promtool
/// checks.
char name_character(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ? c : '_';
}

}  // namespace

std::string sanitise_label(std::string_view text, size_t max_bytes) {
  std::string clean;
  size_t cut = 0;  // where the text ends if it has to make room for the ellipsis
  while (!text.empty()) {
    const size_t length = printable_character(text);
    clean += length > 0 ? text.substr(0, length) : kReplacement;
    text.remove_prefix(std::max<size_t>(length, 1));
    if (clean.size() + kEllipsis.size() <= max_bytes) cut = clean.size();
    if (clean.size() > max_bytes) return clean.substr(0, cut).append(kEllipsis);
  }
  return clean;
}

std::vector<std::string> sanitise_labels(const std::vector<std::string>& texts) {
  std::set<std::string> taken;
  std::map<std::string, int> last;  // number of each; trying all again would be quadratic
  std::vector<std::string> labels;
  for (const std::string& text : texts) {
    const std::string clean = sanitise_label(text);
    std::string label = clean;
    int& n = last.try_emplace(clean, 1).first->second;
    while (!taken.insert(label).second) {
      const std::string suffix = "_" + std::to_string(++n);
      // Longer than a label may be, it would be cut, and equal again.
      label = sanitise_label(clean, kMaxLabelBytes - suffix.size()) + suffix;
    }
    labels.push_back(label);
  }
  return labels;
}

std::string sanitise_label_name(std::string_view text) {
  constexpr std::string_view kPrefix = "fact_";
  constexpr size_t kNumber = 8;  // what tells equal names apart must not have to shorten them
  std::string name(text.substr(0, kMaxLabelBytes - kPrefix.size() - kNumber));
  std::transform(name.begin(), name.end(), name.begin(), name_character);
  const bool starts_badly = name.empty() || (name[0] >= '0' && name[0] <= '9');
  const bool reserved = name.starts_with("__") || name == "le" || name == "quantile" ||
                        name == "job" || name == "instance";
  return starts_badly || reserved ? std::string(kPrefix) + name : name;
}

double exposable(double value) {
  constexpr double kLargest = 1.797693134862315e308;  // the largest that 16 digits can show
  if (value > kLargest && value <= std::numeric_limits<double>::max()) return kLargest;
  if (value < -kLargest && value >= std::numeric_limits<double>::lowest()) return -kLargest;
  return value;
}

std::string sanitise_terminal(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c < 0x20 || c > 0x7E; }, '?');
  return clean;
}

}  // namespace headscope::exporter
