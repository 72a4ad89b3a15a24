#pragma once

#include <span>
#include <string>
#include <string_view>

namespace headscope::exporter {

enum class MetricKind { kGauge, kCounter };

/// One metric of the catalogue. Figures of heads and fields of records bring theirs from the tables
/// of headscope/snapshot.h and headscope/fields.h; the others stand in metric_catalogue.cpp. The
/// text of /metrics and docs/metrics.md come from here.
struct MetricSpec {
  std::string_view name;
  MetricKind kind;
  std::string_view labels;  ///< names, comma separated, in order; "*": free (the *_info metrics)
  std::string_view unit;    ///< "1" for ratios and counts of nothing in particular
  std::string_view help;    ///< one line
  std::string origin;       ///< where the value comes from: fields of headscope/snapshot.h
  std::string_view absent;  ///< when there is no such series
};

/// All metrics, in the order of the exposition.
std::span<const MetricSpec> metric_catalogue();

/// Place of a metric in the catalogue; throws std::invalid_argument that names the unknown metric.
size_t metric_index(std::string_view name);

/// One kind of error that headscope counts (Health::errors).
struct ErrorKind {
  std::string_view name;
  std::string_view meaning;
};

/// The kinds exported from the first scrape on, at 0.
std::span<const ErrorKind> known_error_kinds();

/// The two tables of docs/metrics.md, as Markdown.
std::string catalogue_markdown();
std::string error_kinds_markdown();

}  // namespace headscope::exporter
