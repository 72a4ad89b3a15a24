#include <cstring>

#include "tests/emulation/device/scheduler.h"

// Shared memory, and copies into it that are under way.
namespace headscope::emulation {

unsigned char* Scheduler::allocate_shared(std::size_t bytes) {
  // Blocks of their own, so that AddressSanitizer guards both ends of each variable.
  auto* const data = static_cast<unsigned char*>(::operator new(bytes, std::align_val_t(128)));
  std::memset(data, 0xFF, bytes);  // NaN in every floating-point type
  return data;
}

void Scheduler::free_shared() {
  for (const SharedBlock& block : shared_) {
    // Race-checked: memory used again would look like a race with the block before.
    if (kRaceChecked)
      kept_shared_.push_back(block);
    else
      ::operator delete(block.data, std::align_val_t(128));
  }
  shared_.clear();
}

void Scheduler::allow_shared(const void* kernel, std::size_t bytes) {
  if (bytes > options().limits.shared_bytes)
    throw Error("HEADSCOPE_ALLOW_SHARED: " + std::to_string(bytes) +
                " bytes of shared memory, over the limit of " + options().limits.name);
  allowed_shared_[kernel] = bytes;
}

void* Scheduler::static_shared(const void* key, std::size_t bytes, std::size_t alignment,
                               const char* name) {
  const Unobserved unobserved;
  for (const SharedBlock& block : shared_) {
    if (block.key == key) return block.data;
  }
  static_bytes_ += bytes;
  const Limits& limits = options().limits;
  const Place nowhere{name, 0, 0};
  if (alignment > 128) fail("static shared memory with an alignment over 128 bytes", nowhere);
  if (static_bytes_ > limits.default_shared_bytes) fail("static shared memory over 48 KB", nowhere);
  if (static_bytes_ + shared_.front().bytes > limits.shared_bytes)
    fail("static and dynamic shared memory together over the device's limit", nowhere);
  shared_.push_back({key, allocate_shared(bytes), bytes});
  return shared_.back().data;
}

void Scheduler::check_shared(const void* pointer, std::size_t bytes, const char* operation,
                             Place place) {
  const Unobserved unobserved;
  const auto* const address = static_cast<const unsigned char*>(pointer);
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
    fail(std::string(operation) + ": the shared address is not " + std::to_string(bytes) +
             "-byte aligned",
         place);
  for (const SharedBlock& block : shared_) {
    if (address >= block.data && address + bytes <= block.data + block.bytes) return;
  }
  fail(std::string(operation) + ": the address is outside the block's shared memory", place);
}

void allow_shared(const void* kernel, std::size_t bytes) {
  scheduler().allow_shared(kernel, bytes);
}
unsigned char* dynamic_shared() { return scheduler().dynamic_shared(); }
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const char* name) {
  return scheduler().static_shared(key, bytes, alignment, name);
}
void check_shared(const void* pointer, std::size_t bytes, const char* operation, Place place) {
  scheduler().check_shared(pointer, bytes, operation, place);
}

void push_copy(const AsyncCopy& copy) {
  const Unobserved unobserved;
  Thread& thread = scheduler().running();
  thread.copies.push_back(copy);
  ++thread.uncommitted;
}

void commit_copies() {
  const Unobserved unobserved;
  Thread& thread = scheduler().running();
  thread.groups.push_back(thread.uncommitted);
  thread.uncommitted = 0;
}

bool pop_copy(int pending, AsyncCopy& copy) {
  const Unobserved unobserved;
  Thread& thread = scheduler().running();
  while (static_cast<int>(thread.groups.size()) > pending) {
    if (thread.groups.front() == 0) {
      thread.groups.erase(thread.groups.begin());
      continue;
    }
    --thread.groups.front();
    copy = thread.copies.front();
    thread.copies.erase(thread.copies.begin());
    return true;
  }
  return false;
}

}  // namespace headscope::emulation
