#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>

#include "tests/emulation/device/runtime.h"

// What the language header (cuda_emulation.h) asks of the runtime on behalf of the running thread.
namespace headscope::emulation {

/// Where a kernel calls an operation; its misuse is reported there.
struct Place {
  const char* file;
  int line, column;
  bool operator==(const Place& other) const { return line == other.line && column == other.column; }
};
inline Place place_of(const std::source_location& location) {
  return {location.file_name(), static_cast<int>(location.line()),
          static_cast<int>(location.column())};
}

enum class WarpOperation : unsigned char {
  kSyncwarp,
  kBallot,
  kShuffle,
  kShuffleXor,
  kShuffleUp,
  kShuffleDown,
  kMatchAny,
  kReduceAdd,
  kReduceMinSigned,
  kReduceMaxSigned,
  kReduceMinUnsigned,
  kReduceMaxUnsigned,
  kReduceAnd,
  kReduceOr,
  kLdmatrix,
  kLdmatrixTransposed,
  kMmaBf16,
  kMmaF16,
};
/// A lane's part of a warp-wide operation.
struct WarpOperands {
  std::uint64_t value = 0;
  int argument = 0;          ///< shuffles: source lane, lane mask or delta
  int width = 32;            ///< shuffles: lanes of a segment
  void* fragment = nullptr;  ///< MmaFragments or LdmatrixFragments
};
struct MmaFragments {
  float* d;
  const unsigned *a, *b;
  const float* c;
};
struct LdmatrixFragments {
  std::uint16_t row[8];
  unsigned* registers;
};
/// Waits for the lanes of `mask` at the same place, then exchanges their operands.
std::uint64_t warp_operation(WarpOperation operation, unsigned mask, const WarpOperands& operands,
                             Place place);

enum class BarrierVote : unsigned char { kNone, kCount, kAnd, kOr };
/// __syncthreads and its voting forms.
int block_barrier(BarrierVote vote, bool predicate, Place place);
/// __threadfence.
void fence();

unsigned char* dynamic_shared();
/// The block's variable that `key` stands for; made, poisoned, on first use.
void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const char* name);
/// Fails unless [pointer, pointer + bytes) is `bytes`-aligned shared memory of this block.
void check_shared(const void* pointer, std::size_t bytes, const char* operation, Place place);
[[noreturn]] void fail(const std::string& what, Place place);

/// A cp.async under way.
struct AsyncCopy {
  void* target;
  const void* source;
  bool full;
};
void push_copy(const AsyncCopy& copy);
void commit_copies();
/// Takes the oldest copy that a wait for all but `pending` groups must complete; false: none left.
bool pop_copy(int pending, AsyncCopy& copy);

}  // namespace headscope::emulation
