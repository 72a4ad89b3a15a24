#include "csrc/exporter/page/timeline_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "csrc/exporter/history/history_json.h"

namespace headscope::exporter {
namespace {

constexpr int kFigureDigits = 6;  // figures are kept in single precision

/// Appends "name":
void append_name(std::string& text, std::string_view name) {
  if (text.back() != '{') text += ',';
  text += '"';
  text += name;
  text += "\":";
}

void append_member(std::string& text, std::string_view name, double value, int digits = 0) {
  append_name(text, name);
  append_number(text, value, digits);
}

void append_member(std::string& text, std::string_view name, int64_t value) {
  append_name(text, name);
  text += std::to_string(value);
}

/// Appends [a, b, ...] of `count` numbers, `value(i)` each.
template <typename Value>
void append_list(std::string& text, size_t count, const Value& value) {
  text += '[';
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += ',';
    value(i);
  }
  text += ']';
}

void append_columns(std::string& text, const TimelineRow& row) {
  const size_t heads = row.heads.size();
  const size_t stride = row.figures_per_head();
  const auto column = [&](size_t figure) {
    append_list(text, heads, [&](size_t h) {
      append_number(text, row.figures[h * stride + figure], kFigureDigits);
    });
  };
  text += '{';
  append_name(text, "id");
  append_list(text, heads, [&](size_t h) {
    text +=
        '[' + std::to_string(row.heads[h].layer) + ',' + std::to_string(row.heads[h].head) + ']';
  });
  for (size_t f = 0; f < kHeadFigureCount; ++f) {
    append_name(text, kHeadPageFigures[f].name);
    column(f);
  }
  append_name(text, "class");
  append_list(text, heads, [&](size_t h) { append_string(text, row.class_names[row.classes[h]]); });
  append_name(text, "finite");
  append_list(text, heads, [&](size_t h) { text += (row.flags[h] & 1) != 0 ? "true" : "false"; });
  append_name(text, "specialising");
  append_list(text, heads, [&](size_t h) { text += (row.flags[h] & 2) != 0 ? "true" : "false"; });
  append_name(text, "patterns");
  append_list(text, row.patterns.size(), [&](size_t p) {
    text += '{';
    for (size_t f = 0; f < kPatternFigureCount; ++f) {
      append_name(text, kPatternPageFigures[f].name);
      column(kHeadFigureCount + p * kPatternFigureCount + f);
    }
    text += '}';
  });
  text += '}';
}

void append_head(std::string& text, const TimelineRow& row, const HeadId& id) {
  const auto found = std::lower_bound(row.heads.begin(), row.heads.end(), id);
  if (found == row.heads.end() || *found != id) {
    text += "null";
    return;
  }
  const auto h = static_cast<size_t>(found - row.heads.begin());
  const float* figures = row.figures.data() + h * row.figures_per_head();
  text += '{';
  for (size_t f = 0; f < kHeadFigureCount; ++f)
    append_member(text, kHeadPageFigures[f].name, figures[f], kFigureDigits);
  append_name(text, "class");
  append_string(text, row.class_names[row.classes[h]]);
  append_name(text, "patterns");
  append_list(text, row.patterns.size(), [&](size_t p) {
    text += '{';
    for (size_t f = 0; f < kPatternFigureCount; ++f)
      append_member(text, kPatternPageFigures[f].name,
                    figures[kHeadFigureCount + p * kPatternFigureCount + f], kFigureDigits);
    text += '}';
  });
  text += '}';
}

/// Largest finite margin_z of all heads on a pattern: what the null's critical value is held to.
double largest_margin_z(const TimelineRow& row, size_t pattern) {
  constexpr size_t kMarginZ = std::ranges::find(kPatternPageFigures, &PatternReading::margin_z,
                                                &Figure<PatternReading>::member) -
                              kPatternPageFigures;
  const size_t at = kHeadFigureCount + pattern * kPatternFigureCount + kMarginZ;
  double largest = kNaN;
  for (size_t h = 0; h < row.heads.size(); ++h) {
    const double z = row.figures[h * row.figures_per_head() + at];
    if (std::isfinite(z) && !(largest >= z)) largest = z;
  }
  return largest;
}

/// What the charts of circuits need of each probe; the whole readings are with the newest one.
void append_circuits(std::string& text, const TimelineRow& row) {
  append_list(text, row.circuits.size(), [&](size_t c) {
    const CircuitReading& circuit = row.circuits[c];
    const auto p =
        static_cast<size_t>(std::find(row.patterns.begin(), row.patterns.end(), circuit.pattern) -
                            row.patterns.begin());
    text += '{';
    append_name(text, "pattern");
    append_string(text, circuit.pattern);
    append_name(text, "state");
    append_string(text, to_string(circuit.state));
    append_member(text, "best_selectivity", circuit.best_selectivity, kFigureDigits);
    append_member(text, "critical_margin_z", circuit.critical_margin_z, kFigureDigits);
    append_member(text, "largest_margin_z",
                  p < row.patterns.size() ? largest_margin_z(row, p) : kNaN, kFigureDigits);
    text += '}';
  });
}

}  // namespace

void append_number(std::string& text, double value, int digits) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? "\"NaN\"" : value > 0 ? "\"Infinity\"" : "\"-Infinity\"";
    return;
  }
  char buffer[32];
  const auto end = digits == 0 ? std::to_chars(buffer, buffer + sizeof buffer, value)
                               : std::to_chars(buffer, buffer + sizeof buffer, value,
                                               std::chars_format::general, digits);
  text.append(buffer, end.ptr);
}

void append_string(std::string& text, const std::string& value) {
  text += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_row(std::string& text, const TimelineRow& row, const std::optional<HeadId>& head,
                bool all_heads) {
  text += '{';
  append_member(text, "number", static_cast<int64_t>(row.number));
  append_member(text, "step", row.step);
  append_member(text, "segment", row.segment);
  append_name(text, "source");
  append_string(text, to_string(row.source));
  append_member(text, "tokens", row.tokens);
  append_member(text, "wall_time", row.wall_time);
  append_member(text, "loss", row.loss);
  append_member(text, "context", row.context);
  append_member(text, "probe_interval", row.probe_interval);
  append_member(text, "repeat_gap", row.repeat_gap);
  append_member(text, "sink_any", row.sink_any);
  append_member(text, "sink_class", row.sink_class);
  append_member(text, "monitor_seconds", row.monitor_seconds);
  append_name(text, "circuits");
  append_circuits(text, row);
  if (head) {
    append_name(text, "head");
    append_head(text, row, *head);
  }
  if (all_heads) {
    append_name(text, "patterns");
    text += to_json(row.patterns);
    append_name(text, "heads");
    append_columns(text, row);
  }
  text += '}';
}

}  // namespace headscope::exporter
