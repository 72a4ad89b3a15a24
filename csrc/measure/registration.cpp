#include "csrc/measure/registration.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>

#include <cctype>
#include <exception>
#include <filesystem>
#include <string_view>

#include "csrc/measure/process_check.h"
#include "headscope/version.h"

namespace headscope::measure {
namespace {

constexpr std::string_view kRegisteredAt = "registered at ";

/// The file that holds this code, as the loader knows it, and the version.
std::string this_copy() {
  static const char anchor = 0;
  Dl_info info{};
  std::string file = "?";
  if (dladdr(&anchor, &info) != 0 && info.dli_fname != nullptr) {
    std::error_code ignored;
    file = std::filesystem::absolute(info.dli_fname, ignored).lexically_normal().string();
    if (file.empty()) file = info.dli_fname;
  }
  return file + " (headscope " + version() + ")";
}

/// "registered at FILE:LINE" without words and line.
std::string registrant(std::string_view debug) {
  if (debug.starts_with(kRegisteredAt)) debug.remove_prefix(kRegisteredAt.size());
  const size_t colon = debug.rfind(':');
  if (colon != debug.npos) debug = debug.substr(0, colon);
  return debug.empty() ? "another library" : std::string(debug);
}

/// "2.13.0a" -> "2.13".
std::string_view minor_release(std::string_view version) {
  size_t end = 0;
  for (int dots = 0; end < version.size(); ++end) {
    if (version[end] == '.' && ++dots == 2) break;
    if (version[end] != '.' && std::isdigit(static_cast<unsigned char>(version[end])) == 0) break;
  }
  return version.substr(0, end);
}

}  // namespace

Registration::Registration(const char* operator_name, std::initializer_list<Part> parts) noexcept
    : here_(this_copy()) {
  const auto refuse = [&](const std::string& first) {
    libraries_.clear();
    refusal_ = "headscope: " + here_ +
               " is a second copy of headscope in this process, and cannot be used; the operators "
               "were registered first by " +
               first +
               ". Load one of them only: link everything with the same libheadscope.so, and no "
               "static copy beside it";
  };
  try {
    if (const auto found = c10::Dispatcher::singleton().findSchema({operator_name, ""})) {
      refuse(registrant(found->debug()));
      return;
    }
    for (const Part& part : parts)
      part.fill(libraries_.emplace_back(part.kind, "headscope", part.key, here_.c_str(), __LINE__));
  } catch (const std::exception& error) {
    refuse(std::string("another library; torch says: ") + error.what());
  }
}

std::string torch_mismatch(const std::string& config, const std::string& built) {
  constexpr std::string_view kKey = "TORCH_VERSION=";
  const size_t at = config.find(kKey);
  if (at == config.npos) return "";
  const std::string_view running = std::string_view(config).substr(at + kKey.size());
  if (minor_release(running) == minor_release(built)) return "";
  return "headscope: this library was built for torch " + std::string(minor_release(built)) +
         ", and the process runs torch " + std::string(minor_release(running)) +
         ", whose C++ interface differs. Build headscope against the torch that is used "
         "(HEADSCOPE_TORCH_DIR), or use torch " +
         std::string(minor_release(built));
}

}  // namespace headscope::measure
