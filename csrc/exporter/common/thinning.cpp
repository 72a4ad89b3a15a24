#include "csrc/exporter/common/thinning.h"

#include <algorithm>
#include <cmath>

namespace headscope::exporter {

std::vector<size_t> thinned_indices(size_t size, size_t count) {
  std::vector<size_t> indices;
  if (size <= count || count < 2) {
    for (size_t i = 0; i < size; ++i) indices.push_back(i);
    return indices;
  }
  const size_t linear = (count + 1) / 2;
  const size_t logarithmic = count - linear;
  const auto last = static_cast<double>(size - 1);
  for (size_t i = 0; i < linear; ++i) {
    const double share = linear > 1 ? static_cast<double>(i) / static_cast<double>(linear - 1) : 0;
    indices.push_back(static_cast<size_t>(std::lround(share * last)));
  }
  for (size_t i = 0; i < logarithmic; ++i) {
    const double share = static_cast<double>(i + 1) / static_cast<double>(logarithmic);
    indices.push_back(static_cast<size_t>(std::lround(std::pow(last + 1, share))) - 1);
  }
  std::sort(indices.begin(), indices.end());
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

}  // namespace headscope::exporter
