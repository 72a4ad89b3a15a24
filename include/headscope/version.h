#pragma once

#include "headscope/export.h"

/// The version of the headers; the shared library reports its own through headscope::version().
#define HEADSCOPE_VERSION "0.1.0"

namespace headscope {

/// Version of the loaded library, "major.minor.patch".
HEADSCOPE_API const char* version();

}  // namespace headscope
