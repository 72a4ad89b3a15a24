#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace headscope {

/// numpy's legacy RandomState for integers, bit for bit, on std::mt19937: what the reference
/// protocol draws with. Has nothing to do with the host's generators. Not thread-safe.
class RandomState {
 public:
  explicit RandomState(uint32_t seed) : engine_(seed) {}

  /// Uniform in [low, high): masked rejection on 32-bit draws, one draw a try. A range of one value
  /// draws nothing.
  int64_t integer(int64_t low, int64_t high) {
    if (high <= low)
      throw std::invalid_argument("RandomState::integer: empty range [" + std::to_string(low) +
                                  ", " + std::to_string(high) + ")");
    const uint64_t last = static_cast<uint64_t>(high - low) - 1;
    if (last > 0xffffffffu)
      throw std::invalid_argument("RandomState::integer: range beyond 32 bits");
    if (last == 0) return low;
    uint32_t mask = static_cast<uint32_t>(last);
    for (int shift = 1; shift < 32; shift *= 2) mask |= mask >> shift;
    uint32_t value;
    do {
      value = static_cast<uint32_t>(engine_()) & mask;
    } while (value > last);
    return low + static_cast<int64_t>(value);
  }

  /// A permutation of 0..count-1 (Fisher-Yates from the top, as numpy's shuffle).
  std::vector<int64_t> permutation(int64_t count) {
    std::vector<int64_t> order(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) order[static_cast<size_t>(i)] = i;
    for (int64_t i = count - 1; i > 0; --i)
      std::swap(order[static_cast<size_t>(i)], order[static_cast<size_t>(integer(0, i + 1))]);
    return order;
  }

  /// `count` distinct values of 0..population-1 (numpy's choice without replacement).
  std::vector<int64_t> choice(int64_t population, int64_t count) {
    if (count > population)
      throw std::invalid_argument("RandomState::choice: " + std::to_string(count) + " of " +
                                  std::to_string(population));
    auto order = permutation(population);
    order.resize(static_cast<size_t>(count));
    return order;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace headscope
