#include "csrc/exporter/metrics/text_format.h"

#include <prometheus/client_metric.h>
#include <prometheus/metric_family.h>

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <vector>

namespace headscope::exporter {
namespace {

void append_labels(std::string& text, const std::vector<prometheus::ClientMetric::Label>& labels) {
  if (labels.empty()) return;
  char before = '{';
  for (const auto& label : labels) {
    text += before;
    text.append(label.name).append("=\"");
    for (const char c : label.value) {
      if (c == '"' || c == '\\') text += '\\';
      if (c == '\n') {
        text += "\\n";
      } else {
        text += c;
      }
    }
    text += '"';
    before = ',';
  }
  text += '}';
}

/// 16 digits, as prometheus-cpp writes them: exposable() relies on it.
void append_value(std::string& text, double value) {
  if (!std::isfinite(value)) {
    text += std::isnan(value) ? "Nan" : value > 0 ? "+Inf" : "-Inf";
    return;
  }
  char buffer[32];
  text.append(buffer, std::to_chars(buffer, std::end(buffer), value, std::chars_format::general,
                                    std::numeric_limits<double>::digits10 + 1)
                          .ptr);
}

}  // namespace

std::string serialise(const prometheus::Collectable& metrics) {
  std::string text;
  for (const prometheus::MetricFamily& family : metrics.Collect()) {
    const bool counter = family.type == prometheus::MetricType::Counter;
    text.append("# HELP ").append(family.name).append(" ").append(family.help);
    text.append("\n# TYPE ").append(family.name).append(counter ? " counter\n" : " gauge\n");
    for (const prometheus::ClientMetric& series : family.metric) {
      text += family.name;
      append_labels(text, series.label);
      text += ' ';
      append_value(text, counter ? series.counter.value : series.gauge.value);
      text += '\n';
    }
  }
  return text;
}

}  // namespace headscope::exporter
