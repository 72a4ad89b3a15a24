#include "csrc/probe/group_table.h"

#include <ATen/ATen.h>

#include <algorithm>

namespace headscope {

void GroupTable::add(std::span<const int64_t> positions) {
  targets_.insert(targets_.end(), positions.begin(), positions.end());
  offsets_.push_back(static_cast<int64_t>(targets_.size()));
}

at::Tensor GroupTable::targets() const {
  return int64_tensor(targets_, {static_cast<int64_t>(targets_.size())});
}

at::Tensor GroupTable::offsets() const {
  return int64_tensor(offsets_, {static_cast<int64_t>(offsets_.size())});
}

at::Tensor int64_tensor(std::span<const int64_t> values, at::IntArrayRef sizes) {
  at::Tensor tensor = at::empty(sizes, at::kLong);
  std::copy(values.begin(), values.end(), tensor.data_ptr<int64_t>());
  return tensor;
}

std::vector<int64_t> cleaned_positions(std::vector<int64_t> positions, int64_t end) {
  std::sort(positions.begin(), positions.end());
  positions.erase(std::unique(positions.begin(), positions.end()), positions.end());
  std::erase_if(positions, [&](int64_t t) { return t < 0 || t >= end; });
  return positions;
}

std::vector<int64_t> evenly_spaced(std::span<const int64_t> values, size_t count) {
  if (values.size() <= count) return {values.begin(), values.end()};
  std::vector<int64_t> chosen;
  for (size_t i = 0; i < count; ++i)
    chosen.push_back(values[(2 * i + 1) * values.size() / (2 * count)]);
  return chosen;
}

}  // namespace headscope
