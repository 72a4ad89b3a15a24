#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "tests/emulation/device/device_state.h"
#include "tests/emulation/device/fiber.h"

// The state of the one emulated device while a grid runs. Internal to the emulation.
namespace headscope::emulation {

enum class ThreadState : unsigned char { kReady, kInWarpOperation, kAtBarrier, kEnded };

struct Warp;

struct Thread : Context {
  uint3 index{};
  int linear = 0, lane = 0;
  Warp* warp = nullptr;
  ThreadState state = ThreadState::kReady;
  WarpOperation operation{};  // the latest one, with its operands and result
  WarpOperands operands;
  std::uint64_t result = 0;
  Place place{};                    // of the latest barrier or warp operation
  std::vector<AsyncCopy> copies;    // issued, oldest first
  std::vector<std::size_t> groups;  // copies left in each committed group, oldest first
  std::size_t uncommitted = 0;
};

/// Lanes that gather for one warp-wide operation.
struct Gathering {
  unsigned mask, arrived;
  WarpOperation operation;
  Place place;
  void* order_tag;
};

struct Warp {
  Thread* lanes = nullptr;
  unsigned live = 0, ready = 0;  // lanes that have not ended; lanes that can run
  std::vector<Gathering> gatherings;
};

struct Barrier {
  int arrived = 0, votes = 0;
  BarrierVote vote = BarrierVote::kNone;
  Place place{};
  void* order_tag = nullptr;
};

struct SharedBlock {
  const void* key;  // nullptr: the dynamic one
  unsigned char* data;
  std::size_t bytes;
};

class Scheduler {
 public:
  void run(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
           std::size_t parameter_bytes, void (*call)(void*), void* argument);
  std::uint64_t warp_operation(WarpOperation operation, unsigned mask, const WarpOperands& operands,
                               Place place);
  int block_barrier(BarrierVote vote, bool predicate, Place place);
  void fence();
  void allow_shared(const void* kernel, std::size_t bytes);
  unsigned char* dynamic_shared() { return shared_.front().data; }
  void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const char* name);
  void check_shared(const void* pointer, std::size_t bytes, const char* operation, Place place);
  [[noreturn]] void fail(const std::string& what, Place place);
  Thread& running() { return *static_cast<Thread*>(current_); }

 private:
  static void thread_entry();
  void thread_ended();
  void check_launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                    std::size_t parameter_bytes) const;
  void run_block(dim3 block, std::size_t shared_bytes);
  void start_threads(dim3 block);
  void give_up(const std::string& why);
  std::string who_waits() const;

  /// Lets another ready thread go on; returns when this one's turn has come again.
  void yield(Leaving leaving = Leaving::kForNow);
  void switch_to(Context& to, Leaving leaving);
  Thread* pick();
  unsigned pick_lane(unsigned ready);
  std::uint64_t random();

  /// Ready again, all lanes of `lanes`.
  void wake(Warp& warp, unsigned lanes);
  Gathering& gathering_of(Thread& thread, unsigned mask, Place place);
  bool complete_gathering(Warp& warp, std::size_t index);
  void release_barrier();

  unsigned char* allocate_shared(std::size_t bytes);
  void free_shared();

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Stacks stacks_;
  Context host_;
  Context* current_ = nullptr;
  std::size_t current_warp_ = 0;
  int live_ = 0;
  Barrier barrier_;
  std::vector<SharedBlock> shared_;
  std::size_t static_bytes_ = 0;
  std::map<const void*, std::size_t> allowed_shared_;
  std::vector<SharedBlock> kept_shared_;  // ThreadSanitizer: until the launch ends
  void (*call_)(void*) = nullptr;
  void* argument_ = nullptr;
  std::uint64_t random_state_ = 1;
  bool in_kernel_ = false, gave_up_ = false;
  std::string why_;
  std::exception_ptr exception_;
  char end_tag_ = 0, fence_tag_ = 0;
};

Scheduler& scheduler();

/// What messages call an operation, and where it stands.
const char* name_of(WarpOperation operation);
std::string text_of(Place place);

/// Exchanges the operands of the lanes of `active`. A text: what is wrong with them.
std::string exchange_operands(WarpOperation operation, Thread* lanes, unsigned active, Place place);

}  // namespace headscope::emulation
