#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace headscope::testing {

/// Counts what torch allocates on the CPU, in bytes. One at a time.
class TorchMemory {
 public:
  TorchMemory() : real_(c10::GetCPUAllocator()) {
    static Counter counter(real_);
    c10::SetCPUAllocator(&counter, 200);
  }
  ~TorchMemory() { c10::SetCPUAllocator(real_, 200); }
  TorchMemory(const TorchMemory&) = delete;
  TorchMemory& operator=(const TorchMemory&) = delete;

  /// Runs work; peak() is then the most that it held at a time beyond what was there before.
  template <typename Work>
  void count(const Work& work) {
    now_ = peak_ = 0;
    counting_ = true;
    work();
    counting_ = false;
  }
  int64_t peak() const { return peak_; }

  /// Enters what was allocated (or, below zero, released) by other means, while count() runs.
  static void enter(int64_t bytes) {
    if (!counting_) return;
    const int64_t now = now_ += bytes;
    int64_t before = peak_;
    while (before < now && !peak_.compare_exchange_weak(before, now)) {
    }
  }

 private:
  /// Never destroyed while tensors that it made live.
  class Counter final : public c10::Allocator {
   public:
    explicit Counter(c10::Allocator* real) : real_(real) {}
    c10::DataPtr allocate(size_t bytes) override {
      if (!counting_) return real_->allocate(bytes);
      enter(static_cast<int64_t>(bytes));
      auto* held = new Held{real_->allocate(bytes), bytes};
      return {held->data.get(), held, &release, held->data.device()};
    }
    void copy_data(void* to, const void* from, size_t count) const override {
      real_->copy_data(to, from, count);
    }

   private:
    struct Held {
      c10::DataPtr data;
      size_t bytes;
    };
    static void release(void* context) {
      auto* held = static_cast<Held*>(context);
      now_ -= static_cast<int64_t>(held->bytes);
      delete held;
    }
    c10::Allocator* real_;
  };

  static inline std::atomic<bool> counting_{false};
  static inline std::atomic<int64_t> now_{0}, peak_{0};
  c10::Allocator* real_;
};

}  // namespace headscope::testing
