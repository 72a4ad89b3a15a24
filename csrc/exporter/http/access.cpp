#include "csrc/exporter/http/access.h"

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "csrc/exporter/common/sanitise.h"

namespace headscope::exporter {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw std::runtime_error("metrics server: " + what);
}

std::string password_of(const AccessOptions& options) {
  if (options.password_file.empty() == options.password_env.empty()) {
    refuse("user '" + sanitise_terminal(options.user) +
           "' needs a password: name either password_file or password_env");
  }
  std::string password;
  std::string where;
  if (!options.password_file.empty()) {
    where = "the file " + sanitise_terminal(options.password_file);
    std::ifstream in(options.password_file);
    if (!in) refuse(where + " with the password cannot be read");
    std::getline(in, password);
    if (password.ends_with('\r')) password.pop_back();
  } else {
    where = "the environment variable " + sanitise_terminal(options.password_env);
    const char* value = std::getenv(options.password_env.c_str());
    if (value == nullptr) refuse(where + " with the password is not set");
    password = value;
  }
  if (password.empty()) refuse(where + " holds no password");
  return password;
}

std::string base64(std::string_view bytes) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t k = 0; k < 3; ++k) {
      group = group << 8 | (i + k < bytes.size() ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    }
    for (size_t k = 0; k < 4; ++k) {
      text += i + k <= bytes.size() ? kDigits[group >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

BasicAuth::BasicAuth(const AccessOptions& options) {
  if (options.user.empty()) {
    if (!options.password_file.empty() || !options.password_env.empty()) {
      refuse("a password is given and no user");
    }
    return;
  }
  if (options.user.find(':') != std::string::npos) {
    refuse("the user '" + sanitise_terminal(options.user) + "' has a colon in its name");
  }
  expected_ = "Basic " + base64(options.user + ":" + password_of(options));
}

bool BasicAuth::allows(std::string_view authorization) const {
  if (expected_.empty()) return true;
  if (authorization.size() != expected_.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < expected_.size(); ++i) {
    difference |= static_cast<unsigned char>(authorization[i] ^ expected_[i]);
  }
  return difference == 0;
}

}  // namespace headscope::exporter
