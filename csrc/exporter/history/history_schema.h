#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "csrc/exporter/history/sqlite.h"

namespace headscope::exporter {

/// What a segment supersedes that supersedes all before it: steps from here on.
inline constexpr int64_t kFromTheStart = std::numeric_limits<int64_t>::min();

inline constexpr char kHistoryFile[] = "history.sqlite";
inline constexpr int kHistoryVersion = 2;

/// Where a run directory keeps its history.
std::string history_path(const std::string& run_dir);

/// Refuses what is not a history that this program can read: throws std::runtime_error that names
/// the path, what was found and what to do. Returns false for an empty database.
bool check_history_schema(Database& database);

/// Creates the tables and views of docs/history.md in an empty database.
void create_history_schema(Database& database);

}  // namespace headscope::exporter
