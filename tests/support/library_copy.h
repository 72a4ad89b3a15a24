#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <iterator>
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

/// Copies a library to `to`; a `version` of five characters replaces its own in what it says of
/// itself.
inline std::string copy_library(const std::string& from, const std::string& to,
                                const std::string& version = "") {
  std::ifstream in(from, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!version.empty()) {
    const std::string own = "(headscope " HEADSCOPE_VERSION ")";
    const size_t at = bytes.find(own);
    if (at == bytes.npos || version.size() + 12 != own.size())
      throw std::runtime_error("cannot change the version of " + from);
    bytes.replace(at + 11, version.size(), version);
  }
  std::ofstream(to, std::ios::binary) << bytes;
  return to;
}

}  // namespace headscope::testing
