#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace headscope::demo {

/// A language model that knows nothing of headscope.
struct Subject {
  std::shared_ptr<torch::nn::Module> module;
  /// tokens [B, T] i64 -> logits [B, T, V].
  std::function<at::Tensor(const at::Tensor&)> forward;
};

struct SubjectShape {
  int64_t vocab_size, layers, context;
};

/// The whole program around a model: command line, training with or without the monitor, summary.
/// Returns the exit status.
int zero_edit_program(int argc, const char* const* argv, const std::string& name,
                      const std::function<Subject(const SubjectShape&)>& make);

}  // namespace headscope::demo
