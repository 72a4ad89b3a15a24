#pragma once

#include <cstdint>

namespace headscope::bench {

/// Reads n floats once, as fast as one core can, and returns their sum: the roof of whatever must
/// read them.
double stream_read(const float* data, int64_t n);

}  // namespace headscope::bench
