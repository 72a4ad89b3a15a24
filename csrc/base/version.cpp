#include "headscope/version.h"

namespace headscope {

const char* version() { return HEADSCOPE_VERSION; }

}  // namespace headscope
