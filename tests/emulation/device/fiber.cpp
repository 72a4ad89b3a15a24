#include "tests/emulation/device/fiber.h"

#include <sys/mman.h>

#include <cstdint>

#include "tests/emulation/device/runtime.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// In the ThreadSanitizer build this file is compiled without -fsanitize=thread: it is the
// scheduler, not the program under test.
#ifdef HEADSCOPE_EMULATION_TSAN
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
}
#endif

namespace headscope::emulation {
namespace {

constexpr std::size_t kPage = 4096;

char* map(std::size_t bytes) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw Error("no address space is left for the threads' stacks");
  return static_cast<char*>(memory);
}

}  // namespace

#ifndef HEADSCOPE_EMULATION_UCONTEXT
// Saves what the System V ABI calls preserved, swaps stacks, restores.
extern "C" void headscope_switch_stacks(void** save, void* load);
asm(R"(
.text
.globl headscope_switch_stacks
.type headscope_switch_stacks,@function
headscope_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size headscope_switch_stacks,.-headscope_switch_stacks
)");
#endif

void prepare(Context& context, void (*entry)()) {
  context.fake_stack = nullptr;
#ifdef HEADSCOPE_EMULATION_UCONTEXT
  getcontext(&context.registers);
  context.registers.uc_stack.ss_sp = context.stack;
  context.registers.uc_stack.ss_size = context.stack_bytes;
  context.registers.uc_link = nullptr;
  makecontext(&context.registers, entry, 0);
#else
  auto** top = reinterpret_cast<void**>(context.stack + context.stack_bytes);
  *--top = nullptr;  // a return address that is never used; aligns the stack as after a call
  *--top = reinterpret_cast<void*>(entry);
  for (int preserved = 0; preserved < 6; ++preserved) *--top = nullptr;
  context.stack_pointer = top;
#endif
#ifdef HEADSCOPE_EMULATION_TSAN
  context.thread_fiber = __tsan_create_fiber(0);
#endif
}

void release([[maybe_unused]] Context& context) {
#ifdef HEADSCOPE_EMULATION_TSAN
  __tsan_destroy_fiber(context.thread_fiber);
#endif
}

void adopt_caller([[maybe_unused]] Context& context) {
#ifdef HEADSCOPE_EMULATION_TSAN
  context.thread_fiber = __tsan_get_current_fiber();
#endif
}

void entered([[maybe_unused]] Context& starter) {
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  std::size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (starter.stack == nullptr) {
    starter.stack = static_cast<char*>(const_cast<void*>(bottom));
    starter.stack_bytes = bytes;
  }
#endif
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))
#endif
void switch_context(Context& from, Context& to, [[maybe_unused]] Leaving leaving) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(leaving == Leaving::kForGood ? nullptr : &from.fake_stack,
                                 to.stack, to.stack_bytes);
#endif
#ifdef HEADSCOPE_EMULATION_TSAN
  __tsan_switch_to_fiber(to.thread_fiber, 1);  // 1: no ordering by the switch itself
#endif
#ifdef HEADSCOPE_EMULATION_UCONTEXT
  swapcontext(&from.registers, &to.registers);
#else
  headscope_switch_stacks(&from.stack_pointer, to.stack_pointer);
#endif
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void Stacks::provide(std::size_t count, std::size_t bytes) {
  if (bytes_ != bytes) {
    drop();
    bytes_ = bytes;
  }
  while (stacks_.size() < count) {
    char* const memory = map(bytes_ + kPage);
    mprotect(memory, kPage, PROT_NONE);
    stacks_.push_back(memory + kPage);
  }
}

void Stacks::drop() {
  for (char* const stack : stacks_) munmap(stack - kPage, bytes_ + kPage);
  stacks_.clear();
}

void Stacks::unpoison() const {
#ifdef __SANITIZE_ADDRESS__
  for (char* const stack : stacks_) __asan_unpoison_memory_region(stack, bytes_);
#endif
}

void acquire_order([[maybe_unused]] void* tag) {
#ifdef HEADSCOPE_EMULATION_TSAN
  __tsan_acquire(tag);
#endif
}

void release_order([[maybe_unused]] void* tag) {
#ifdef HEADSCOPE_EMULATION_TSAN
  __tsan_release(tag);
#endif
}

void* fresh_order_tag() {
#ifdef HEADSCOPE_EMULATION_TSAN
  // One address for all barriers would order a block after those that ran before it.
  constexpr std::size_t kBytes = std::size_t{1} << 27;
  static char* const tags = map(kBytes);
  static std::size_t used = 0;
  return tags + (used++ * 8) % kBytes;
#else
  return nullptr;
#endif
}

void stop_observing() {
#ifdef HEADSCOPE_EMULATION_TSAN
  __tsan_ignore_thread_begin();
#endif
}

void resume_observing() {
#ifdef HEADSCOPE_EMULATION_TSAN
  __tsan_ignore_thread_end();
#endif
}

}  // namespace headscope::emulation
