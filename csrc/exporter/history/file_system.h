#pragma once

#include <cstdint>
#include <string>

namespace headscope::exporter {

/// True for the statfs types of file systems that other machines may share (NFS, SMB, FUSE, 9p,
/// Lustre, GPFS, ...): the shared memory of SQLite's write-ahead log does not work there.
bool is_network_type(uint64_t statfs_type);

/// The same for the file system that holds `path`; true when it cannot be told.
bool on_network_file_system(const std::string& path);

/// Throws std::runtime_error when something else than a regular file lies at `path`: opening a pipe
/// may wait for ever. What is not there passes.
void check_regular_file(const std::string& path);

}  // namespace headscope::exporter
