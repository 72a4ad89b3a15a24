#pragma once

#include <optional>
#include <string>

#include "csrc/exporter/page/timeline.h"

namespace headscope::exporter {

/// Text of the API's documents (docs/api.md). Numbers as in the history's JSON: what JSON has no
/// number for is the string "NaN", "Infinity" or "-Infinity".

/// Appends a number: `digits` significant ones, 0: as many as bring back the same bits.
void append_number(std::string& text, double value, int digits = 0);
/// Appends a quoted string; bytes that are not UTF-8 become U+FFFD.
void append_string(std::string& text, const std::string& value);

/// Appends one row as an object: its own figures and, where asked for, those of one head (`head`;
/// null when the row has no such head) or of all (`heads`, by columns).
void append_row(std::string& text, const TimelineRow& row, const std::optional<HeadId>& head,
                bool all_heads);

}  // namespace headscope::exporter
