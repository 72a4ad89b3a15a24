#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "headscope/monitor.h"

namespace headscope {

/// One attention call as a call source saw it. Lives as long as the call itself.
struct SeenCall {
  enum class Kind { kSdpa, kEager };
  Kind kind;
  at::Tensor q, k, v, z;  ///< [B, H, T, D] when the heads are known, else as the call had them
  AttentionCall call;
};

/// Who is told of the calls of one thread.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Returns what the call is to give: z, or z with heads zeroed.
  virtual at::Tensor seen(SeenCall call) noexcept = 0;
  /// The heads of an eager call whose batch and heads share a dimension: N = B H; 0: not known.
  virtual int64_t heads_of_next(int64_t merged) const noexcept = 0;

  /// Held weakly by the lists below, which are thread-local and may outlive an observer that is
  /// destroyed on another thread.
  const std::shared_ptr<const int> alive = std::make_shared<const int>(0);
};

/// One thread's observers.
class ObserverList {
 public:
  void add(CallObserver* observer) { entries_.push_back({observer, observer->alive}); }
  void remove(const CallObserver* observer) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.observer == observer; });
  }
  bool empty() const { return entries_.empty(); }
  /// Those that still exist.
  std::vector<CallObserver*> living() {
    std::erase_if(entries_, [](const Entry& entry) { return entry.alive.expired(); });
    std::vector<CallObserver*> all;
    for (const Entry& entry : entries_) all.push_back(entry.observer);
    return all;
  }

 private:
  struct Entry {
    CallObserver* observer;
    std::weak_ptr<const int> alive;
  };
  std::vector<Entry> entries_;
};

}  // namespace headscope
