#pragma once

#include <cstdint>
#include <string>

namespace headscope::exporter {

/// True for the statfs types of file systems that other machines may share (NFS, SMB, FUSE, 9p,
/// Lustre, GPFS, ...): the shared memory of SQLite's write-ahead log does not work there.
bool is_network_type(uint64_t statfs_type);

/// The same for the file system that holds `path`; true when it cannot be told.
bool on_network_file_system(const std::string& path);

}  // namespace headscope::exporter
