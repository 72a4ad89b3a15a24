#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "headscope/patterns.h"
#include "plugin/cli/csv.h"

namespace headscope::cli {

/// Of the column `formed_threshold`: selectivity that formed needed in the run itself, by pattern.
using RecordedThresholds = std::map<std::string, double>;

/// Enters the threshold of the present row; nothing where it is empty. Throws InputError when it is
/// no selectivity above 0, or differs from an earlier one of the pattern.
void note_threshold(const CsvReader& csv, size_t column, const std::string& pattern,
                    RecordedThresholds& thresholds);

/// Gives the patterns formed_at_256 such that what was recorded holds at the context returned: the
/// probe's span, which is smaller than its rows where it has a window; `context` where no standard
/// pattern tells it. Patterns that are read at several query positions have a span of their own,
/// smaller still.
int64_t apply_recorded(const RecordedThresholds& thresholds, std::vector<Pattern>& patterns,
                       int64_t context);

}  // namespace headscope::cli
