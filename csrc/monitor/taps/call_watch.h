#pragma once

namespace headscope {

/// A source of attention calls that counts them: told where measurements and forwards begin, so
/// that call n of a forward is layer n. Called on the training thread; must not throw.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  /// The taps of this thread are about to be measured, or no longer.
  virtual void measuring(bool on) noexcept = 0;
  /// The next call is the first of a forward.
  virtual void forward_begins() noexcept = 0;
};

}  // namespace headscope
