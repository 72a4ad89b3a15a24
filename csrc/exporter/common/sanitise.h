#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headscope::exporter {

inline constexpr size_t kMaxLabelBytes = 256;

/// A label value that every Prometheus parser takes: valid UTF-8 without control characters (what
/// is not becomes U+FFFD), at most `max_bytes` long (cut between characters, "..." at the end).
std::string sanitise_label(std::string_view text, size_t max_bytes = kMaxLabelBytes);

/// The same for each of `texts`; values that became equal get "_2", "_3", ... so that no two series
/// share labels.
std::vector<std::string> sanitise_labels(const std::vector<std::string>& texts);

/// A label name in snake case: [a-z_][a-z0-9_]*, capitals become small, other bytes '_'; never a
/// name that Prometheus reserves.
std::string sanitise_label_name(std::string_view text);

/// A value that still parses after the serialiser has rounded it to 16 digits: magnitudes near
/// DBL_MAX would round up beyond it, and one such value makes Prometheus refuse the whole scrape.
double exposable(double value);

/// For a terminal: printable ASCII only, everything else becomes '?', so that bytes are columns and
/// nothing is a command.
std::string sanitise_terminal(std::string_view text);

}  // namespace headscope::exporter
