#pragma once

#include <exception>
#include <string>

namespace headscope::testing {

/// What a call's error says, "no error" without one; errors of another kind than Error pass
/// through.
template <typename Error = std::exception, typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace headscope::testing
