#pragma once

#include <cstddef>
#include <vector>

#if !defined(__x86_64__) && !defined(HEADSCOPE_EMULATION_UCONTEXT)
#define HEADSCOPE_EMULATION_UCONTEXT
#endif
#ifdef HEADSCOPE_EMULATION_UCONTEXT
#include <ucontext.h>
#endif

// Execution contexts that are switched by hand, made known to the sanitizers.
namespace headscope::emulation {

struct Context {
#ifdef HEADSCOPE_EMULATION_UCONTEXT
  ucontext_t registers;
#else
  void* stack_pointer = nullptr;
#endif
  char* stack = nullptr;
  std::size_t stack_bytes = 0;
  void* fake_stack = nullptr;    // AddressSanitizer's
  void* thread_fiber = nullptr;  // ThreadSanitizer's
};

/// Sets up `context`, which has a stack, so that switching to it calls entry().
void prepare(Context& context, void (*entry)());
/// Frees what prepare() took; the context does not run.
void release(Context& context);
/// Makes `context` stand for the caller.
void adopt_caller(Context& context);
/// First statement of an entry function. `starter` is the context that adopt_caller() filled.
void entered(Context& starter);

enum class Leaving { kForNow, kForGood };
/// Leaves `from` for `to`; under ThreadSanitizer without ordering the two.
void switch_context(Context& from, Context& to, Leaving leaving);

/// Stacks with a guard page below each.
class Stacks {
 public:
  ~Stacks() { drop(); }
  /// At least `count` stacks of `bytes`.
  void provide(std::size_t count, std::size_t bytes);
  void drop();
  char* operator[](std::size_t index) const { return stacks_[index]; }
  std::size_t bytes() const { return bytes_; }
  /// After contexts were left behind: their frames are no longer poisoned.
  void unpoison() const;

 private:
  std::vector<char*> stacks_;
  std::size_t bytes_ = 0;
};

/// Under ThreadSanitizer: what happened before release_order(tag) happened before what follows
/// acquire_order(tag).
void acquire_order(void* tag);
void release_order(void* tag);
/// A tag that no one used lately, nullptr without ThreadSanitizer.
void* fresh_order_tag();

/// The emulation's own memory accesses are none of the kernel's: between these two ThreadSanitizer
/// ignores them.
void stop_observing();
void resume_observing();

class Unobserved {
 public:
  Unobserved() { stop_observing(); }
  ~Unobserved() { resume_observing(); }
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;
};

#ifdef HEADSCOPE_EMULATION_TSAN
inline constexpr bool kRaceChecked = true;
#else
inline constexpr bool kRaceChecked = false;
#endif

}  // namespace headscope::emulation
