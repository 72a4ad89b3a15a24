#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "headscope/monitor.h"

namespace headscope {
namespace {

/// Puts a module into evaluation; its release puts back every submodule's own mode and what a
/// forward wrote into buffers.
class ModuleEvaluation {
 public:
  explicit ModuleEvaluation(torch::nn::Module& module) {
    // Parents come before their children, and train() reaches down: restoring in this order ends
    // right.
    modes_.emplace_back(&module, module.is_training());
    for (const auto& part : module.modules(/*include_self=*/false)) {
      modes_.emplace_back(part.get(), part->is_training());
    }
    for (const at::Tensor& buffer : module.buffers(/*recurse=*/true)) {
      if (!buffer.defined() || buffer.is_inference()) continue;
      buffers_.push_back({buffer, buffer.detach().clone(), buffer._version()});
    }
    try {
      module.eval();
    } catch (...) {
      restore();
      throw;
    }
  }

  ~ModuleEvaluation() { restore(); }

  ModuleEvaluation(const ModuleEvaluation&) = delete;
  ModuleEvaluation& operator=(const ModuleEvaluation&) = delete;

 private:
  struct SavedBuffer {
    at::Tensor buffer;
    at::Tensor value;
    int64_t version;
  };

  /// Never throws: it runs in a destructor, beside the user's training. What cannot be put back (a
  /// train() that throws) does not keep the rest from being put back.
  void restore() noexcept {
    const at::NoGradGuard no_grad;
    for (auto& saved : buffers_) {
      try {
        // Writing bumps the version: a buffer that was not written must not look modified to
        // autograd.
        if (saved.buffer._version() == saved.version) continue;
        if (saved.buffer.sizes() != saved.value.sizes()) saved.buffer.resize_(saved.value.sizes());
        saved.buffer.copy_(saved.value);
      } catch (...) {
      }
    }
    for (const auto& [part, training] : modes_) {
      try {
        part->train(training);
      } catch (...) {
      }
    }
  }

  std::vector<std::pair<torch::nn::Module*, bool>> modes_;
  std::vector<SavedBuffer> buffers_;
};

}  // namespace

void Monitor::set_probe(torch::nn::Module& model, ForwardFunction forward, ProbeOptions options,
                        ForwardFunction attention_forward) {
  set_probe(ProbeHost{std::move(forward),
                      [&model]() -> std::shared_ptr<void> {
                        return std::make_shared<ModuleEvaluation>(model);
                      },
                      std::move(attention_forward)},
            std::move(options));
}

}  // namespace headscope
