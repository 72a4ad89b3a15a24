#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "headscope/snapshot.h"

namespace headscope::exporter {

/// A query that cannot be answered; what() names the parameter and its value.
class BadQuery : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The parameters of the API's queries. An empty query gives the defaults.
struct Query {
  uint64_t since = 0;
  size_t points = 500;
  std::optional<HeadId> head;
};

/// Parses "since=5&head=1.4&points=200". Throws BadQuery on values out of range, on names that are
/// not in `known`, and on a name given twice.
Query parse_query(std::string_view text, std::string_view known);

}  // namespace headscope::exporter
