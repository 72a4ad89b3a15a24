#pragma once

/// The version of the headers; the shared library reports its own through headscope::version().
#define HEADSCOPE_VERSION "0.1.0"

namespace headscope {

/// Version of the loaded library, "major.minor.patch".
const char* version();

}  // namespace headscope
