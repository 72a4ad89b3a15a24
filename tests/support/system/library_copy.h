#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>

#include "headscope/monitor.h"
#include "headscope/version.h"

namespace headscope::testing {

/// A libheadscope.so opened by dlopen, and its Monitor::attach. Stays open unless closed.
struct OpenedLibrary {
  std::string file;
  void* handle = nullptr;
  std::shared_ptr<Monitor> (*attach)(Options) = nullptr;

  OpenedLibrary(std::string path, int mode) : file(std::move(path)) {
    handle = dlopen(file.c_str(), RTLD_NOW | mode);
    if (handle == nullptr) throw std::runtime_error(dlerror());
    void* found = dlsym(handle, "_ZN9headscope7Monitor6attachENS_7OptionsE");
    if (found == nullptr) throw std::runtime_error(dlerror());
    attach = reinterpret_cast<std::shared_ptr<Monitor> (*)(Options)>(found);
  }
  void close() { dlclose(handle); }

  /// What attach throws, "" when it does not.
  std::string refusal() const {
    try {
      Options options;
      options.serve = false;
      attach(std::move(options));
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  }
};

/// Copies a library to `to`; a `version` of as many characters replaces its own.
inline std::string copy_library(const std::string& from, const std::string& to,
                                const std::string& version = HEADSCOPE_VERSION) {
  std::string bytes(std::filesystem::file_size(from), '\0');
  std::ifstream(from, std::ios::binary)
      .read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::string own(HEADSCOPE_VERSION, sizeof(HEADSCOPE_VERSION));  // with its final zero
  if (version.size() + 1 != own.size() || bytes.find(own) == bytes.npos)
    throw std::runtime_error("cannot change the version of " + from);
  for (size_t at = 0; (at = bytes.find(own, at)) != bytes.npos; ++at)
    bytes.replace(at, version.size(), version);
  std::ofstream(to, std::ios::binary) << bytes;
  return to;
}

}  // namespace headscope::testing
