#include "tests/emulation/device/scheduler.h"

#include <bit>
#include <cstring>

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace headscope::emulation {
namespace {

unsigned bit_of(int lane) { return 1u << lane; }
int lowest(unsigned lanes) { return std::countr_zero(lanes); }

}  // namespace

Options& options() {
  static Options value;
  return value;
}

Statistics& statistics() {
  static Statistics value;
  return value;
}

Scheduler& scheduler() {
  static Scheduler value;
  return value;
}

std::string text_of(Place place) {
  const char* const slash = std::strrchr(place.file, '/');
  return std::string(slash != nullptr ? slash + 1 : place.file) + ":" + std::to_string(place.line);
}

void run_grid(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
              std::size_t parameter_bytes, void (*call)(void*), void* argument) {
  scheduler().run(kernel, grid, block, shared_bytes, parameter_bytes, call, argument);
}
int block_barrier(BarrierVote vote, bool predicate, Place place) {
  return scheduler().block_barrier(vote, predicate, place);
}
void fence() { scheduler().fence(); }
void fail(const std::string& what, Place place) { scheduler().fail(what, place); }

void Scheduler::fail(const std::string& what, Place place) {
  throw Error(what + " [" + text_of(place) + ", block " + std::to_string(blockIdx.x) + "," +
              std::to_string(blockIdx.y) + "," + std::to_string(blockIdx.z) + ", thread " +
              std::to_string(running().linear) + "]");
}

void Scheduler::give_up(const std::string& why) {
  if (gave_up_) return;
  gave_up_ = true;
  why_ = why;
}

// ---------------------------------------------------------------- a grid

void Scheduler::check_launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                             std::size_t parameter_bytes) const {
  const Limits& limits = options().limits;
  const auto refuse = [&](const std::string& what) {
    throw Error(std::string("invalid launch on ") + limits.name + ": " + what);
  };
  const std::size_t threads = std::size_t{block.x} * block.y * block.z;
  if (in_kernel_) refuse("a kernel launches a kernel");
  if (threads == 0 || threads > limits.block_threads || block.z > 64)
    refuse(std::to_string(threads) + " threads per block, at most " +
           std::to_string(limits.block_threads));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 2147483647u || grid.y > 65535 ||
      grid.z > 65535)
    refuse("a grid of " + std::to_string(grid.x) + "," + std::to_string(grid.y) + "," +
           std::to_string(grid.z));
  if (parameter_bytes > limits.parameter_bytes)
    refuse(std::to_string(parameter_bytes) + " bytes of parameters");
  if (shared_bytes > limits.default_shared_bytes) {
    const auto allowed = allowed_shared_.find(kernel);
    if (allowed == allowed_shared_.end() || allowed->second < shared_bytes)
      refuse(std::to_string(shared_bytes) +
             " bytes of dynamic shared memory without HEADSCOPE_ALLOW_SHARED "
             "(cudaFuncSetAttribute)");
  }
  if (shared_bytes > limits.shared_bytes)
    refuse(std::to_string(shared_bytes) + " bytes of shared memory, over the device's limit of " +
           std::to_string(limits.shared_bytes));
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))
#endif
void Scheduler::run(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
                    std::size_t parameter_bytes, void (*call)(void*), void* argument) {
  check_launch(kernel, grid, block, shared_bytes, parameter_bytes);
  call_ = call;
  argument_ = argument;
  random_state_ = options().seed * 0x9E3779B97F4A7C15ull | 1;
  gave_up_ = false;
  exception_ = nullptr;
  in_kernel_ = true;
  blockDim = block;
  gridDim = grid;
  adopt_caller(host_);
  ++statistics().launches;

  const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
  std::vector<std::size_t> sequence(blocks);
  for (std::size_t i = 0; i < blocks; ++i)
    sequence[i] = options().order == Order::kReverse ? blocks - 1 - i : i;
  if (options().order == Order::kRandom) {
    for (std::size_t i = blocks; i > 1; --i) std::swap(sequence[i - 1], sequence[random() % i]);
  }
  for (const std::size_t linear : sequence) {
    blockIdx = {static_cast<unsigned>(linear % grid.x),
                static_cast<unsigned>(linear / grid.x % grid.y),
                static_cast<unsigned>(linear / grid.x / grid.y)};
    run_block(block, shared_bytes);
    if (gave_up_) break;
  }
  acquire_order(&end_tag_);
  for (const SharedBlock& kept : kept_shared_) ::operator delete(kept.data, std::align_val_t(128));
  kept_shared_.clear();
  in_kernel_ = false;
  if (exception_) std::rethrow_exception(exception_);
  if (gave_up_) throw Error(why_);
}

void Scheduler::start_threads(dim3 block) {
  const std::size_t count = std::size_t{block.x} * block.y * block.z;
  threads_.resize(count);
  warps_.assign((count + 31) / 32, Warp{});
  stacks_.provide(count, options().stack_bytes);
  for (std::size_t i = 0; i < count; ++i) {
    Thread& thread = threads_[i];
    thread = Thread{};
    thread.stack = stacks_[i];
    thread.stack_bytes = stacks_.bytes();
    thread.index = {static_cast<unsigned>(i % block.x),
                    static_cast<unsigned>(i / block.x % block.y),
                    static_cast<unsigned>(i / block.x / block.y)};
    thread.linear = static_cast<int>(i);
    thread.lane = static_cast<int>(i % 32);
    thread.warp = &warps_[i / 32];
    prepare(thread, &Scheduler::thread_entry);
    if (thread.lane == 0) thread.warp->lanes = &thread;
    thread.warp->live |= bit_of(thread.lane);
  }
  for (Warp& warp : warps_) warp.ready = warp.live;
  live_ = static_cast<int>(count);
  barrier_ = Barrier{};
  current_warp_ = options().order == Order::kReverse ? warps_.size() - 1 : 0;
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))
#endif
void Scheduler::run_block(dim3 block, std::size_t shared_bytes) {
  ++statistics().blocks;
  static_bytes_ = 0;
  shared_.push_back({nullptr, allocate_shared(shared_bytes), shared_bytes});
  start_threads(block);
  current_ = &host_;
  if (Thread* const first = pick()) switch_to(*first, Leaving::kForNow);
  if (live_ > 0 && !gave_up_) give_up(who_waits());
  for (Thread& thread : threads_) release(thread);
  if (gave_up_) stacks_.unpoison();
  // Race-checked: the next block's threads are not ordered after this block's, so share no memory.
  if (kRaceChecked) stacks_.drop();
  free_shared();
}

std::string Scheduler::who_waits() const {
  struct Waiting {
    int threads = 0, first = 0;
  };
  std::map<std::string, Waiting> waiting;
  for (const Thread& thread : threads_) {
    if (thread.state == ThreadState::kEnded) continue;
    const char* const what =
        thread.state == ThreadState::kAtBarrier ? "__syncthreads" : name_of(thread.operation);
    Waiting& group = waiting[std::string(what) + " at " + text_of(thread.place)];
    if (group.threads++ == 0) group.first = thread.linear;
  }
  std::string text = "deadlock: no thread of block " + std::to_string(blockIdx.x) + "," +
                     std::to_string(blockIdx.y) + "," + std::to_string(blockIdx.z) + " can go on:";
  for (const auto& [where, group] : waiting)
    text += "\n  " + std::to_string(group.threads) + " thread(s) wait in " + where +
            ", the first is thread " + std::to_string(group.first);
  return text;
}

// ---------------------------------------------------------------- a thread

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))
#endif
void Scheduler::thread_entry() {
  Scheduler& self = scheduler();
  entered(self.host_);
  try {
    self.call_(self.argument_);
  } catch (...) {
    if (!self.gave_up_) {
      self.gave_up_ = true;
      self.exception_ = std::current_exception();
    }
  }
  {
    const Unobserved unobserved;
    self.thread_ended();
  }
  self.yield(Leaving::kForGood);
  __builtin_unreachable();
}

void Scheduler::thread_ended() {
  Thread& thread = running();
  Warp& warp = *thread.warp;
  if (!gave_up_ && !thread.copies.empty())
    give_up("thread " + std::to_string(thread.linear) +
            " ended with cp.async copies that it never waited for");
  if (barrier_.arrived > 0)
    give_up("thread " + std::to_string(thread.linear) + " ended while " +
            std::to_string(barrier_.arrived) + " thread(s) wait at __syncthreads at " +
            text_of(barrier_.place));
  release_order(&end_tag_);
  thread.state = ThreadState::kEnded;
  --live_;
  warp.live &= ~bit_of(thread.lane);
  if (gave_up_) return;
  for (std::size_t i = 0; i < warp.gatherings.size(); ++i) {
    const Gathering& waiting = warp.gatherings[i];
    if ((waiting.arrived & warp.live) == (waiting.mask & warp.live)) {
      complete_gathering(warp, i);
      return;
    }
  }
}

void Scheduler::switch_to(Context& to, Leaving leaving) {
  Context& from = *current_;
  current_ = &to;
  if (&to != &host_) threadIdx = static_cast<Thread&>(to).index;
  // A thread pauses inside an Unobserved and may never go on: it must not stay unobserved then, and
  // the host takes what it did as done before the end of the launch.
  const bool pauses = &from != &host_ && leaving == Leaving::kForNow;
  if (pauses) {
    release_order(&end_tag_);
    resume_observing();
  }
  switch_context(from, to, leaving);
  if (pauses) stop_observing();
}

#ifdef __SANITIZE_ADDRESS__
__attribute__((no_sanitize("address")))
#endif
void Scheduler::yield(Leaving leaving) {
  Thread* const next = gave_up_ ? nullptr : pick();
  if (next == current_) return;
  switch_to(next != nullptr ? static_cast<Context&>(*next) : host_, leaving);
}

std::uint64_t Scheduler::random() {
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return random_state_;
}

unsigned Scheduler::pick_lane(unsigned ready) {
  switch (options().order) {
    case Order::kForward:
      return static_cast<unsigned>(lowest(ready));
    case Order::kReverse:
      return static_cast<unsigned>(31 - std::countl_zero(ready));
    case Order::kRandom:
      break;
  }
  const unsigned from = static_cast<unsigned>(random() & 31);
  const unsigned above = ready >> from << from;
  return static_cast<unsigned>(lowest(above != 0 ? above : ready));
}

Thread* Scheduler::pick() {
  const std::size_t count = warps_.size();
  std::size_t start = current_warp_;
  // Stays with a warp for eight turns on average: long runs of one warp show more races than a fair
  // rotation does.
  if (options().order == Order::kRandom && count > 1 &&
      (warps_[start].ready == 0 || (random() & 7) == 0))
    start = random() % count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t w =
        options().order == Order::kReverse ? (start + count - i) % count : (start + i) % count;
    if (warps_[w].ready == 0) continue;
    const unsigned lane = pick_lane(warps_[w].ready);
    current_warp_ = w;
    warps_[w].ready &= ~(1u << lane);
    return &warps_[w].lanes[lane];
  }
  return nullptr;
}

void Scheduler::wake(Warp& warp, unsigned lanes) {
  warp.ready |= lanes;
  for (; lanes != 0; lanes &= lanes - 1) warp.lanes[lowest(lanes)].state = ThreadState::kReady;
}

// ---------------------------------------------------------------- barriers

void Scheduler::release_barrier() {
  ++statistics().barriers;
  int result = 0;
  if (barrier_.vote == BarrierVote::kCount) result = barrier_.votes;
  if (barrier_.vote == BarrierVote::kOr) result = barrier_.votes > 0;
  if (barrier_.vote == BarrierVote::kAnd) result = barrier_.votes == live_;
  for (Thread& thread : threads_) thread.result = static_cast<std::uint64_t>(result);
  for (Warp& warp : warps_) wake(warp, warp.live);
  barrier_.arrived = 0;
  barrier_.votes = 0;
}

int Scheduler::block_barrier(BarrierVote vote, bool predicate, Place place) {
  const Unobserved unobserved;
  Thread& thread = running();
  if (barrier_.arrived > 0 && (!(barrier_.place == place) || barrier_.vote != vote))
    fail("divergent barrier: a thread is at " + text_of(place) + " while " +
             std::to_string(barrier_.arrived) + " thread(s) wait at " + text_of(barrier_.place),
         place);
  if (live_ != static_cast<int>(threads_.size()))
    fail("__syncthreads after threads of the block have ended", place);
  if (barrier_.arrived == 0) barrier_.order_tag = fresh_order_tag();
  barrier_.place = place;
  barrier_.vote = vote;
  barrier_.votes += predicate;
  ++barrier_.arrived;
  thread.state = ThreadState::kAtBarrier;
  thread.place = place;
  void* const tag = barrier_.order_tag;
  release_order(tag);
  // The last to arrive has no right to go on first.
  if (barrier_.arrived == live_) release_barrier();
  yield();
  acquire_order(tag);
  return static_cast<int>(thread.result);
}

void Scheduler::fence() {
  release_order(&fence_tag_);
  acquire_order(&fence_tag_);
}

}  // namespace headscope::emulation
