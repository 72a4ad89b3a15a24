#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>

namespace headscope::testing {

/// A strict reader of the Prometheus text format 0.0.4, for what is wrong with a text.
class Exposition {
 public:
  /// The first fault with its line, empty when there is none.
  static std::string fault_of(std::string_view text) {
    Exposition reader;
    if (!text.empty() && text.back() != '\n') return "the last line does not end";
    while (!text.empty()) {
      const std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(line.size() + 1);
      const std::string fault = reader.line_fault(line);
      if (!fault.empty()) return fault + ": " + std::string(line);
    }
    return "";
  }

 private:
  std::string line_fault(std::string_view line) {
    if (line.empty()) return "an empty line";
    if (!is_utf8(line)) return "not UTF-8";
    if (line.front() == '#') return comment_fault(line);
    return sample_fault(line);
  }

  std::string comment_fault(std::string_view line) {
    const bool type = line.starts_with("# TYPE ");
    if (!type && !line.starts_with("# HELP ")) return "neither HELP nor TYPE";
    line.remove_prefix(7);
    const std::string_view name = line.substr(0, line.find(' '));
    if (!is_name(name, true)) return "a bad name";
    if (!type) return helped_.emplace(name).second ? "" : "a second HELP";
    const std::string_view kind = line.substr(std::min(line.size(), name.size() + 1));
    if (kind != "counter" && kind != "gauge") return "an unknown type";
    family_ = name;
    return typed_.emplace(name).second ? "" : "a second TYPE";
  }

  std::string sample_fault(std::string_view line) {
    const std::string_view name = line.substr(0, line.find_first_of("{ "));
    if (!is_name(name, true)) return "a bad name";
    if (name != family_) return "outside its family";
    line.remove_prefix(name.size());
    std::set<std::string> labels;  // with their values: the order of labels means nothing
    if (line.starts_with('{')) {
      const std::string fault = labels_fault(line, labels);
      if (!fault.empty()) return fault;
    }
    if (!line.starts_with(' ')) return "no value";
    std::string series(name);
    for (const std::string& label : labels) series += "," + label;
    if (!series_.insert(series).second) return "a second time";
    return value_fault(std::string(line.substr(1)));
  }

  /// Moves `line` behind the labels.
  static std::string labels_fault(std::string_view& line, std::set<std::string>& labels) {
    std::set<std::string, std::less<>> names;
    do {
      line.remove_prefix(1);  // the brace, or a comma
      const size_t equals = line.find("=\"");
      if (equals == std::string_view::npos) return "a label without value";
      const std::string_view name = line.substr(0, equals);
      if (!is_name(name, false) || name.starts_with("__")) return "a bad label name";
      if (!names.emplace(name).second) return "a label name twice";
      size_t end = equals + 2;
      for (; end < line.size() && line[end] != '"'; ++end) {
        if (line[end] != '\\') continue;
        ++end;
        if (end == line.size() || std::string_view("\\\"n").find(line[end]) == line.npos) {
          return "a bad escape";
        }
      }
      if (end >= line.size()) return "a label value without end";
      labels.emplace(line.substr(0, end + 1));
      line.remove_prefix(end + 1);
    } while (line.starts_with(','));
    if (!line.starts_with('}')) return "labels without end";
    line.remove_prefix(1);
    return "";
  }

  /// What Go's ParseFloat takes of what strtod takes.
  static std::string value_fault(const std::string& text) {
    if (text == "Nan" || text == "NaN" || text == "+Inf" || text == "-Inf") return "";
    if (text.empty() || text.find_first_not_of("0123456789+-.eE") != std::string::npos) {
      return "no number, or more than one";
    }
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end != text.c_str() + text.size()) return "no number";
    return std::isfinite(value) ? "" : "beyond the range of a double";
  }

  /// A reader of its own, not the exporter's.
  static bool is_utf8(std::string_view text) {
    try {
      nlohmann::json(text).dump();
      return true;
    } catch (const nlohmann::json::type_error&) {
      return false;
    }
  }

  static bool is_name(std::string_view name, bool colons) {
    if (name.empty() || (name[0] >= '0' && name[0] <= '9')) return false;
    for (const char c : name) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (!letter && !(c >= '0' && c <= '9') && c != '_' && !(colons && c == ':')) return false;
    }
    return true;
  }

  std::string family_;
  std::set<std::string, std::less<>> helped_, typed_;
  std::set<std::string> series_;
};

}  // namespace headscope::testing
