#pragma once

#include <prometheus/metric_family.h>

#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace headscope::exporter {

/// Gathers series under the names of the catalogue, and cleans every label and value on the way in.
class FamilyBuilder {
 public:
  FamilyBuilder();

  /// Adds one series; `labels` are the values of the catalogue's labels, in order. Throws
  /// std::invalid_argument on a metric that is not in the catalogue or on another number of labels.
  void add(std::string_view metric, std::initializer_list<std::string_view> labels, double value);

  /// The same, left out when the value is NaN, which means "not measured".
  void add_measured(std::string_view metric, std::initializer_list<std::string_view> labels,
                    double value);

  /// Adds the single series of a metric with free labels, value 1.
  void add_info(std::string_view metric, const std::map<std::string, std::string>& facts);

  /// The families that have series, in the order of the catalogue.
  std::vector<prometheus::MetricFamily> take();

 private:
  std::vector<prometheus::MetricFamily> families_;     // one per metric of the catalogue
  std::vector<std::vector<std::string>> label_names_;  // the same
};

}  // namespace headscope::exporter
