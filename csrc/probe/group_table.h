#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

namespace headscope {

/// Builds the `targets` and `offsets` arguments of attention_mass, group by group in row-major
/// order.
class GroupTable {
 public:
  void add(std::span<const int64_t> positions);
  void add(int64_t position) { add(std::span(&position, 1)); }
  /// [n] and [groups added + 1], int64.
  at::Tensor targets() const;
  at::Tensor offsets() const;

 private:
  std::vector<int64_t> targets_;
  std::vector<int64_t> offsets_{0};
};

/// Copies values into a new int64 tensor.
at::Tensor int64_tensor(std::span<const int64_t> values, at::IntArrayRef sizes);

/// Ascending, distinct and within [0, end): what a pattern's own function gives may be none of
/// these.
std::vector<int64_t> cleaned_positions(std::vector<int64_t> positions, int64_t end);

/// `count` (or fewer) entries of `values`, evenly spaced and always the same ones.
std::vector<int64_t> evenly_spaced(std::span<const int64_t> values, size_t count);

}  // namespace headscope
