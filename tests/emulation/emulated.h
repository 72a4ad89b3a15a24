#pragma once

#include <vector>

#include "tests/emulation/device/runtime.h"

// What tests of emulated kernels share.
namespace headscope::emulation {

struct ThreadOrder {
  const char* name;
  Order order;
  std::uint64_t seed;
};

/// Every kernel test runs in each of these. Sanitised builds need one: ThreadSanitizer sees a race
/// and AddressSanitizer an overrun whatever order the threads came in.
inline std::vector<ThreadOrder> thread_orders() {
#if defined(HEADSCOPE_EMULATION_TSAN) || defined(__SANITIZE_ADDRESS__)
  return {{"random 1", Order::kRandom, 1}};
#else
  return {{"forward", Order::kForward, 0},
          {"reverse", Order::kReverse, 0},
          {"random 1", Order::kRandom, 1},
          {"random 2", Order::kRandom, 2}};
#endif
}

#ifdef HEADSCOPE_EMULATION_TSAN
inline constexpr bool kIsRaceChecked = true;
#else
inline constexpr bool kIsRaceChecked = false;
#endif

/// Why a test skips under ThreadSanitizer.
inline constexpr const char* kTooManyFibers =
    "a fiber costs ThreadSanitizer a millisecond; smaller shapes of the same kernels are "
    "race-checked";

/// Runs launches in an order for as long as it lives.
class OrderScope {
 public:
  explicit OrderScope(const ThreadOrder& order) : saved_(options()) {
    options().order = order.order;
    options().seed = order.seed;
  }
  ~OrderScope() { options() = saved_; }
  OrderScope(const OrderScope&) = delete;
  OrderScope& operator=(const OrderScope&) = delete;

 private:
  Options saved_;
};

}  // namespace headscope::emulation
