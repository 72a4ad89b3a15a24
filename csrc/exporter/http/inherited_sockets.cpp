#include "csrc/exporter/http/inherited_sockets.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace headscope::exporter {
namespace {

bool is_at(int fd, const sockaddr_in& local) noexcept {
  sockaddr_in own{};
  socklen_t size = sizeof own;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  if (own.sin_family != AF_INET || own.sin_port != local.sin_port) return false;
  int type = 0;
  size = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return false;
  const in_addr_t address = local.sin_addr.s_addr;
  return address == htonl(INADDR_ANY) || own.sin_addr.s_addr == address;
}

/// The number that `name` is, or -1.
int number_of(const char* name) noexcept {
  int number = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return -1;
    number = 10 * number + (*name - '0');
  }
  return number;
}

}  // namespace

// opendir() allocates; the system call does not.
void close_sockets_at(const sockaddr_in& local) noexcept {
  const int folder = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return;
  alignas(dirent64) char entries[4096];
  for (long got; (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      const int fd = number_of(entry->d_name);
      if (fd >= 0 && is_at(fd, local)) close(fd);
      at += entry->d_reclen;
    }
  }
  close(folder);
}

}  // namespace headscope::exporter
