#include "csrc/exporter/history/file_system.h"

#include <sys/vfs.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <stdexcept>
#include <system_error>

namespace headscope::exporter {
namespace {

constexpr uint32_t kNetworkTypes[] = {
    0x6969,      // NFS
    0x517B,      // SMB
    0xFF534D42,  // CIFS
    0xFE534D42,  // SMB2
    0x65735546,  // FUSE, virtiofs
    0x01021997,  // 9p
    0x0BD00BD0,  // Lustre
    0x47504653,  // GPFS
    0x00C36400,  // Ceph
    0x19830326,  // BeeGFS
    0x5346414F,  // AFS
    0x6B414653,  // kAFS
    0x73757245,  // Coda
    0x7461636F,  // OCFS2
    0x01161970,  // GFS2
    0xAAD7AAEA,  // Panasas
    0xBACBACBC,  // VMware shared folders
    0x786F4256,  // VirtualBox shared folders
};

}  // namespace

bool is_network_type(uint64_t statfs_type) {
  // Some kernels sign-extend the 32 bits.
  const auto type = static_cast<uint32_t>(statfs_type);
  return std::find(std::begin(kNetworkTypes), std::end(kNetworkTypes), type) !=
         std::end(kNetworkTypes);
}

bool on_network_file_system(const std::string& path) {
  struct statfs facts {};
  return statfs(path.c_str(), &facts) != 0 || is_network_type(static_cast<uint64_t>(facts.f_type));
}

void check_regular_file(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::file_status status = std::filesystem::status(path, unknown);
  if (!std::filesystem::exists(status) || std::filesystem::is_regular_file(status)) return;
  throw std::runtime_error(path + " is not a file; move it away or use another run directory");
}

}  // namespace headscope::exporter
