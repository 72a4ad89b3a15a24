#include "csrc/exporter/metrics/family_builder.h"

#include <prometheus/client_metric.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "csrc/exporter/common/sanitise.h"
#include "csrc/exporter/metrics/metric_catalogue.h"

namespace headscope::exporter {
namespace {

constexpr size_t kMaxFacts = 64;

std::vector<std::string> split(std::string_view names) {
  std::vector<std::string> parts;
  while (!names.empty()) {
    const size_t comma = names.find(',');
    parts.emplace_back(names.substr(0, comma));
    names.remove_prefix(comma == std::string_view::npos ? names.size() : comma + 1);
  }
  return parts;
}

void set_value(prometheus::MetricType type, double value, prometheus::ClientMetric& series) {
  (type == prometheus::MetricType::Counter ? series.counter.value : series.gauge.value) = value;
}

}  // namespace

FamilyBuilder::FamilyBuilder() {
  for (const MetricSpec& spec : metric_catalogue()) {
    prometheus::MetricFamily family;
    family.name = spec.name;
    family.help = spec.help;
    family.type = spec.kind == MetricKind::kCounter ? prometheus::MetricType::Counter
                                                    : prometheus::MetricType::Gauge;
    families_.push_back(std::move(family));
    label_names_.push_back(split(spec.labels));
  }
}

void FamilyBuilder::add(std::string_view metric, std::initializer_list<std::string_view> labels,
                        double value) {
  const size_t index = metric_index(metric);
  const std::vector<std::string>& names = label_names_[index];
  if (labels.size() != names.size()) {
    throw std::invalid_argument("metric '" + std::string(metric) + "' has " +
                                std::to_string(names.size()) + " labels, got " +
                                std::to_string(labels.size()));
  }
  prometheus::ClientMetric series;
  series.label.reserve(labels.size());
  size_t i = 0;
  for (const std::string_view label : labels) {
    series.label.push_back({names[i++], sanitise_label(label)});
  }
  set_value(families_[index].type, exposable(value), series);
  families_[index].metric.push_back(std::move(series));
}

void FamilyBuilder::add_measured(std::string_view metric,
                                 std::initializer_list<std::string_view> labels, double value) {
  if (!std::isnan(value)) add(metric, labels, value);
}

void FamilyBuilder::add_info(std::string_view metric,
                             const std::map<std::string, std::string>& facts) {
  prometheus::ClientMetric series;
  std::vector<std::string> keys;
  for (const auto& [key, value] : facts) {
    if (keys.size() == kMaxFacts) break;
    keys.push_back(sanitise_label_name(key));
    series.label.push_back({"", sanitise_label(value)});
  }
  keys = sanitise_labels(keys);
  for (size_t i = 0; i < keys.size(); ++i) series.label[i].name = keys[i];
  series.gauge.value = 1;
  families_[metric_index(metric)].metric.push_back(std::move(series));
}

std::vector<prometheus::MetricFamily> FamilyBuilder::take() {
  std::vector<prometheus::MetricFamily> filled;
  for (prometheus::MetricFamily& family : families_) {
    if (!family.metric.empty()) filled.push_back(std::move(family));
  }
  families_.clear();
  return filled;
}

}  // namespace headscope::exporter
