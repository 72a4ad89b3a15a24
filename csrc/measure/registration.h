#pragma once

#include <torch/library.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

namespace headscope::measure {

/// The operators in torch's dispatcher while this object lives. TORCH_LIBRARY would end the process
/// on a second copy of headscope (a static library beside a wheel, two files opened by dlopen);
/// this registers nothing then and remembers why.
class Registration {
 public:
  /// One torch::Library: its kind, its dispatch key, and what is put into it.
  struct Part {
    torch::Library::Kind kind;
    std::optional<c10::DispatchKey> key;
    void (*fill)(torch::Library&);
  };
  /// operator_name: e.g. "headscope::f", whose presence says that another copy came first.
  Registration(const char* operator_name, std::initializer_list<Part> parts) noexcept;

  /// Why nothing was registered, naming both files; empty: all is registered.
  const std::string& refusal() const { return refusal_; }

 private:
  const std::string here_;  ///< this copy's file and version; torch keeps a pointer to it
  std::string refusal_;
  std::vector<torch::Library> libraries_;
};

}  // namespace headscope::measure
