#pragma once

#include <cstddef>
#include <vector>

namespace headscope::exporter {

/// `count` of the indices 0..size-1 in order, the first and the last among them: half of them
/// evenly spaced, half evenly spaced in the logarithm, so that a chart is smooth on both axes. All
/// indices when there are no more than `count`.
std::vector<size_t> thinned_indices(size_t size, size_t count);

}  // namespace headscope::exporter
