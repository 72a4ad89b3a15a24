#pragma once

namespace headscope::measure {

/// While one lives the operators of this thread stay on it. For a thread beside the training: a
/// team of its own would take the cores that the training's waits for.
class OneCore {
 public:
  OneCore() : before_(active_) { active_ = true; }
  ~OneCore() { active_ = before_; }
  OneCore(const OneCore&) = delete;
  OneCore& operator=(const OneCore&) = delete;

  static bool active() { return active_; }

 private:
  static inline thread_local bool active_ = false;
  bool before_;
};

}  // namespace headscope::measure
