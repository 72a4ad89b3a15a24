#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>

#include "headscope/measure.h"

// The kernels behind the operators of ops.cpp, which checks the arguments: for every kind of device
// the same functions, in csrc/measure/<device>/<stem>.cpp. A new operator has a line in each part.
namespace headscope::measure {

using OptionalTensor = std::optional<at::Tensor>;
/// The members of AttentionRows in their order.
using RowTensors =
    std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

using AccumulateGram = void(at::Tensor& gram, at::Tensor& sum, at::Tensor& count,
                            const at::Tensor& z, const at::Tensor& shift,
                            const OptionalTensor& keep);
using AttentionMass = RowTensors(const at::Tensor& q, const at::Tensor& k, const at::Tensor& rows,
                                 const at::Tensor& targets, const at::Tensor& offsets,
                                 int64_t groups, const AttentionCall& call);
using RecomputeRows = at::Tensor(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const at::Tensor& rows, const AttentionCall& call);
using SymmetricEigenvalues = at::Tensor(const at::Tensor& matrices);

}  // namespace headscope::measure

namespace headscope::cpu {

struct EntryPoints {
  static measure::AccumulateGram accumulate_gram_;
  static measure::AttentionMass attention_mass;
  static measure::RecomputeRows recompute_rows;
  static measure::SymmetricEigenvalues symmetric_eigenvalues;
};

}  // namespace headscope::cpu

// Ordered on the current stream of the inputs' device, never waited for; workspace from torch's
// caching allocator. What the kernels do not take (f64, widths above 256) goes to cuBLAS, cuSOLVER
// or compositions of torch's operators. Every failure is an exception that names the operator.
namespace headscope::cuda {

struct EntryPoints {
  static measure::AccumulateGram accumulate_gram_;
  /// rows, targets and offsets may be on the host: they are checked there and copied through pinned
  /// memory. On the device positions out of range give NaN.
  static measure::AttentionMass attention_mass;
  static measure::RecomputeRows recompute_rows;
  static measure::SymmetricEigenvalues symmetric_eigenvalues;
};

}  // namespace headscope::cuda
