#include "csrc/exporter/common/atomic_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace headscope::exporter {

void replace_atomically(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp" + std::to_string(getpid());
  std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
  out << text << std::flush;
  const bool written = out.good();
  const int write_error = errno;
  out.close();
  if (written && std::rename(temporary.c_str(), path.c_str()) == 0) return;
  const int error = written ? errno : write_error;
  std::remove(temporary.c_str());
  throw std::runtime_error("cannot write " + path + ": " + std::strerror(error));
}

}  // namespace headscope::exporter
