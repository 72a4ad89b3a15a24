#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <type_traits>
#include <vector>

#include "csrc/exporter/metrics/family_builder.h"
#include "headscope/fields.h"

namespace headscope::exporter {

/// A field's value as a series shows it; NaN: no series.
template <typename Number>
requires std::is_arithmetic_v<Number>
double series_value(Number value) { return static_cast<double>(value); }
/// A step below 0 was never reached.
inline double series_value(int64_t step) { return step < 0 ? kNaN : static_cast<double>(step); }
/// Of a list its length.
template <typename Item>
double series_value(const std::vector<Item>& list) {
  return static_cast<double>(list.size());
}

/// Adds the series of a record's fields, in the order of its table. `labels`: of all but those that
/// have a label of their own.
template <typename Record>
void add_fields(const Record& record, std::initializer_list<std::string_view> labels,
                FamilyBuilder& builder) {
  for_each_field<Record>([&](const auto& field) {
    using Value = std::remove_cvref_t<decltype(record.*field.member)>;
    if constexpr (requires(const Value& value) { series_value(value); }) {
      const Metric& metric = field.metric;
      if (metric.name.empty()) return;
      const double value = series_value(record.*field.member);
      if (metric.label.empty()) {
        builder.add_measured(metric.name, labels, value);
      } else {
        builder.add_measured(metric.name, {metric.label}, value);
      }
    }
  });
}

}  // namespace headscope::exporter
