#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

// The emulated device: how kernels are launched on the CPU and what is recorded. One fiber per CUDA
// thread, one operating-system thread for all; blocks run one after another. Single-threaded.

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_extent = 1, unsigned y_extent = 1, unsigned z_extent = 1)
      : x(x_extent), y(y_extent), z(z_extent) {}
};

namespace headscope::emulation {

/// Misuse that CUDA would answer with wrong results, a hang or an error code. The text names the
/// source lines and threads involved.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// In which order the ready threads of a block and the blocks of a grid run.
enum class Order { kForward, kReverse, kRandom };
/// Rounding of a tensor core's sum. Hardware truncates while it aligns: toward zero is its
/// pessimistic stand-in.
enum class MmaRounding { kNearest, kTowardZero };

/// Launch limits of an architecture.
struct Limits {
  const char* name;
  std::size_t shared_bytes;  ///< a block's shared memory after cudaFuncSetAttribute
  unsigned block_threads = 1024;
  std::size_t default_shared_bytes = 48 * 1024;
  std::size_t parameter_bytes = 32764;
};
inline constexpr Limits kSm80{"sm_80", 163 * 1024};
inline constexpr Limits kSm90{"sm_90", 227 * 1024};
inline constexpr Limits kSm100{"sm_100", 227 * 1024};

struct Options {
  Order order = Order::kRandom;
  std::uint64_t seed = 1;
  MmaRounding mma_rounding = MmaRounding::kTowardZero;
  Limits limits = kSm80;  ///< the smallest of the three
  std::size_t stack_bytes = 64 * 1024;
};
Options& options();

/// What ran since the program began.
struct Statistics {
  std::uint64_t launches = 0, blocks = 0, barriers = 0, warp_operations = 0, mmas = 0;
};
Statistics& statistics();

/// cudaFuncSetAttribute(MaxDynamicSharedMemorySize).
void allow_shared(const void* kernel, std::size_t bytes);

/// Runs call(argument) once per thread of the grid.
void run_grid(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
              std::size_t parameter_bytes, void (*call)(void*), void* argument);

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
            Arguments&&... arguments) {
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<std::decay_t<Parameters>...> arguments;
  } call{kernel, {static_cast<Parameters>(std::forward<Arguments>(arguments))...}};
  run_grid(
      reinterpret_cast<const void*>(kernel), grid, block, shared_bytes,
      (sizeof(std::decay_t<Parameters>) + ... + 0),
      [](void* pointer) {
        auto* const self = static_cast<Call*>(pointer);
        std::apply(self->kernel, self->arguments);
      },
      &call);
}

/// Device memory of exactly `size` elements (AddressSanitizer guards its ends), filled with 0xFF:
/// NaN in every floating-point type.
template <typename T>
class Buffer {
 public:
  explicit Buffer(std::size_t size, std::size_t misalignment = 0)
      : raw_(::operator new(size * sizeof(T) + misalignment, std::align_val_t(256))),
        data_(reinterpret_cast<T*>(static_cast<unsigned char*>(raw_) + misalignment)),
        size_(size) {
    fill_bytes(0xFF);
  }
  ~Buffer() { ::operator delete(raw_, std::align_val_t(256)); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t index) { return data_[index]; }
  const T& operator[](std::size_t index) const { return data_[index]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  void fill_bytes(unsigned char byte) {
    std::memset(static_cast<void*>(data_), byte, size_ * sizeof(T));
  }
  void zero() { fill_bytes(0); }

 private:
  void* raw_;
  T* data_;
  std::size_t size_;
};

}  // namespace headscope::emulation
