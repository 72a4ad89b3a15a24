#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/device.cuh"
#include "tests/emulation/emulated.h"
#include "tests/emulation/misuse.h"

// The emulation computes what CUDA does and says clearly what CUDA would not.
namespace headscope::emulation {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Launch>
std::string error_of(Launch launch) {
  try {
    launch();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

// ---------------------------------------------------------------- what is right

__global__ void warp_functions(unsigned* out) {
  const unsigned lane = threadIdx.x;
  unsigned* const mine = out + lane * 10;
  mine[0] = __shfl_sync(0xffffffffu, lane, 5);
  mine[1] = __shfl_xor_sync(0xffffffffu, lane, 3);
  mine[2] = __shfl_up_sync(0xffffffffu, lane, 2);
  mine[3] = __shfl_down_sync(0xffffffffu, lane, 2, 8);
  mine[4] = __ballot_sync(0xffffffffu, lane % 3 == 0);
  mine[5] = __reduce_add_sync(0xffffffffu, lane);
  mine[6] = static_cast<unsigned>(__reduce_min_sync(0xffffffffu, static_cast<int>(lane) - 7));
  mine[7] = __match_any_sync(0xffffffffu, lane % 8);
  mine[8] = static_cast<unsigned>(__any_sync(0xffffffffu, lane == 9));
  mine[9] = static_cast<unsigned>(__all_sync(0xffffffffu, lane != 9));
}

TEST(Emulation, WarpFunctions) {
  Buffer<unsigned> out(320);
  HEADSCOPE_LAUNCH(warp_functions, 1, 32, 0, nullptr, out.data());
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned* const mine = out.data() + lane * 10;
    EXPECT_EQ(mine[0], 5u);
    EXPECT_EQ(mine[1], lane ^ 3u);
    EXPECT_EQ(mine[2], lane < 2 ? lane : lane - 2);
    EXPECT_EQ(mine[3], lane % 8 < 6 ? lane + 2 : lane);
    EXPECT_EQ(mine[4], 0x49249249u);
    EXPECT_EQ(mine[5], 496u);
    EXPECT_EQ(static_cast<int>(mine[6]), -7);
    EXPECT_EQ(mine[7], 0x01010101u << lane % 8);
    EXPECT_EQ(mine[8], 1u);
    EXPECT_EQ(mine[9], 0u);
  }
}

__global__ void votes(int* out) {
  const bool odd = threadIdx.x % 2 == 1;
  const int count = __syncthreads_count(odd);
  const int any = __syncthreads_or(threadIdx.x == 40), all = __syncthreads_and(threadIdx.x != 40);
  if (threadIdx.x == 63) out[0] = count * 100 + any * 10 + all;
}

TEST(Emulation, VotingBarriers) {
  Buffer<int> out(1);
  HEADSCOPE_LAUNCH(votes, 1, 64, 0, nullptr, out.data());
  EXPECT_EQ(out[0], 3210);
}

// A [16, 16] and B [16, 8] through ldmatrix; Bt holds B transposed, as rows of 16.
template <typename Number, bool kIsHalf>
__global__ void product(float* out, const Number* a, const Number* bt) {
  HEADSCOPE_SHARED(Number, left, [16 * 16]);
  HEADSCOPE_SHARED(Number, right, [16 * 16]);
  const int lane = static_cast<int>(threadIdx.x);
  cp_async_16(left + lane * 8, a + lane * 8);
  cp_async_16(right + lane * 8, lane < 16 ? bt + lane * 8 : bt, lane < 16);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  unsigned fragment[4], other[4];
  ldmatrix_x4(fragment, left + (lane % 16) * 16 + lane / 16 * 8);
  ldmatrix_x4(other, right + (lane % 8 + lane / 16 * 8) * 16 + lane / 8 % 2 * 8);
  const unsigned factor[2] = {other[0], other[1]};
  float sum[4] = {1, 1, 1, 1};
  if (kIsHalf) {
    mma_m16n8k16_f16(sum, fragment, factor, sum);
  } else {
    mma_m16n8k16_bf16(sum, fragment, factor, sum);
  }
  for (int i = 0; i < 4; ++i) out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

template <typename Number, bool kIsHalf, typename FromFloat>
void check_product(FromFloat from_float) {
  Buffer<Number> a(256), bt(128);
  Buffer<float> out(128);
  const auto left = [](int i, int k) { return static_cast<float>((i * 5 + k * 3) % 11 - 5); };
  const auto right = [](int k, int j) { return static_cast<float>((k * 7 + j * 2) % 9 - 4); };
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < 16; ++k) a[static_cast<std::size_t>(i * 16 + k)] = from_float(left(i, k));
  for (int j = 0; j < 8; ++j)
    for (int k = 0; k < 16; ++k) bt[static_cast<std::size_t>(j * 16 + k)] = from_float(right(k, j));
  const auto kernel = product<Number, kIsHalf>;
  HEADSCOPE_LAUNCH(kernel, 1, 32, 0, nullptr, out.data(), a.data(), bt.data());
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float want = 1;
      for (int k = 0; k < 16; ++k) want += left(i, k) * right(k, j);
      EXPECT_EQ(out[static_cast<std::size_t>(i * 8 + j)], want) << i << "," << j;
    }
  }
}

TEST(Emulation, TensorCoreProducts) {
  check_product<__nv_bfloat16, false>([](float value) { return __float2bfloat16(value); });
  check_product<__half, true>([](float value) { return __float2half(value); });
}

TEST(Emulation, HalvesRoundToNearestEven) {
  for (unsigned bits = 0; bits < 0x7c00; ++bits) {
    const float value = __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
    const float next = __half2float(__ushort_as_half(static_cast<unsigned short>(bits + 1)));
    ASSERT_EQ(__float2half(value).x, bits);
    if (!std::isfinite(next)) continue;
    const float middle = (value + next) / 2;
    ASSERT_EQ(__float2half(middle).x, bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(__float2half(std::nextafterf(middle, next)).x, bits + 1);
    ASSERT_EQ(__float2half(-value).x, bits | 0x8000u);
  }
  EXPECT_TRUE(std::isinf(__half2float(__float2half(65520.f))));
  EXPECT_EQ(__half2float(__float2half(65519.f)), 65504.f);
  EXPECT_TRUE(std::isnan(__half2float(__float2half(std::nanf("")))));
}

__global__ void atomics(int* out) {
  atomicAdd(out, 1);
  atomicMax(out + 1, static_cast<int>(threadIdx.x));
}

TEST(Emulation, AtomicsAcrossBlocks) {
  Buffer<int> out(2);
  out.zero();
  HEADSCOPE_LAUNCH(atomics, 3, 40, 0, nullptr, out.data());
  EXPECT_EQ(out[0], 120);
  EXPECT_EQ(out[1], 39);
}

// ---------------------------------------------------------------- what is wrong

TEST(Misuse, DivergentBarriersNameBothLines) {
  Buffer<int> out(64);
  const std::string error =
      error_of([&] { HEADSCOPE_LAUNCH(misuse::divergent_barrier, 1, 32, 0, nullptr, out.data()); });
  EXPECT_THAT(error, AllOf(HasSubstr("divergent barrier"), HasSubstr("misuse.h:10"),
                           HasSubstr("misuse.h:14")));
}

TEST(Misuse, ExitBeforeABarrier) {
  Buffer<int> out(64);
  EXPECT_THAT(error_of([&] {
                HEADSCOPE_LAUNCH(misuse::exit_before_barrier, 1, 64, 0, nullptr, out.data());
              }),
              ::testing::AnyOf(HasSubstr("ended while"), HasSubstr("have ended")));
}

TEST(Misuse, DeadlocksSayWhoWaitsWhere) {
  Buffer<int> out(64);
  EXPECT_THAT(
      error_of([&] { HEADSCOPE_LAUNCH(misuse::deadlock, 1, 64, 0, nullptr, out.data()); }),
      AllOf(HasSubstr("deadlock"), HasSubstr("32 thread(s) wait in __syncwarp at misuse.h:"),
            HasSubstr("32 thread(s) wait in __syncthreads at misuse.h:")));
}

TEST(Misuse, WarpOperations) {
  Buffer<int> out(32);
  const auto error = [&](void (*kernel)(int*)) {
    return error_of([&] { HEADSCOPE_LAUNCH(kernel, 1, 32, 0, nullptr, out.data()); });
  };
  EXPECT_THAT(error(misuse::half_of_a_shuffle), HasSubstr("divergent warp operation"));
  EXPECT_THAT(error(misuse::mismatched_masks), HasSubstr("divergent warp operation"));
  EXPECT_THAT(error(misuse::not_in_its_mask), HasSubstr("not in its mask"));
  EXPECT_THAT(error(misuse::shuffle_from_outside), HasSubstr("does not take part"));
}

TEST(Misuse, TensorCores) {
  Buffer<float> out(64);
  const auto error = [&](void (*kernel)(float*)) {
    return error_of([&] { HEADSCOPE_LAUNCH(kernel, 1, 32, 0, nullptr, out.data()); });
  };
  EXPECT_THAT(error(misuse::misaligned_ldmatrix), HasSubstr("not 16-byte aligned"));
  EXPECT_THAT(error(misuse::ldmatrix_from_global), HasSubstr("outside the block's shared memory"));
  EXPECT_THAT(error([](float*) {}), HasSubstr("no error"));
  // Forward, the lanes that compute come first and are seen to miss the others only at the end.
  const OrderScope scope({"reverse", Order::kReverse, 0});
  EXPECT_THAT(error(misuse::mma_by_half_a_warp), HasSubstr("all 32 lanes"));
}

TEST(Misuse, AsynchronousCopies) {
  Buffer<float> out(4), in(8);
  in.zero();
  EXPECT_THAT(error_of([&] {
                HEADSCOPE_LAUNCH(misuse::forgotten_copy, 1, 1, 0, nullptr, out.data(), in.data());
              }),
              HasSubstr("never waited for"));
  EXPECT_THAT(error_of([&] {
                HEADSCOPE_LAUNCH(misuse::read_before_the_wait, 1, 1, 0, nullptr, out.data(),
                                 in.data() + 1);
              }),
              HasSubstr("not 16-byte aligned"));
  HEADSCOPE_LAUNCH(misuse::read_before_the_wait, 1, 1, 0, nullptr, out.data(), in.data());
  EXPECT_TRUE(std::isnan(out[0]));
}

TEST(Misuse, SharedMemoryIsPoisoned) {
  Buffer<float> out(63);
  HEADSCOPE_LAUNCH(misuse::uninitialised_shared, 1, 63, 0, nullptr, out.data());
  EXPECT_EQ(out[3], 1.f);
  EXPECT_TRUE(std::isnan(out[40]));
}

TEST(Misuse, Launches) {
  Buffer<float> out(64);
  const auto launch = [&](dim3 grid, dim3 block, std::size_t shared_bytes) {
    return error_of([&] {
      HEADSCOPE_LAUNCH(misuse::dynamic_shared_overrun, grid, block, shared_bytes, nullptr,
                       out.data(), 0);
    });
  };
  EXPECT_THAT(launch(1, 1025, 0), HasSubstr("1025 threads per block"));
  EXPECT_THAT(launch(dim3(1, 70000), 1, 0), HasSubstr("a grid of"));
  EXPECT_THAT(launch(0, 1, 0), HasSubstr("a grid of"));
  EXPECT_THAT(launch(1, 32, 64 * 1024), HasSubstr("HEADSCOPE_ALLOW_SHARED"));
  HEADSCOPE_ALLOW_SHARED(misuse::dynamic_shared_overrun, 64 * 1024);
  EXPECT_THAT(launch(1, 32, 64 * 1024), HasSubstr("no error"));
  const auto allow = [](std::size_t bytes) {
    return error_of([&] { HEADSCOPE_ALLOW_SHARED(misuse::dynamic_shared_overrun, bytes); });
  };
  EXPECT_THAT(allow(200 * 1024), HasSubstr("sm_80"));
  const Options saved = options();
  for (const Limits& limits : {kSm90, kSm100}) {
    options().limits = limits;
    EXPECT_THAT(allow(200 * 1024), HasSubstr("no error"));
    EXPECT_THAT(allow(228 * 1024), HasSubstr(limits.name));
  }
  options() = saved;
}

TEST(Misuse, TheDeviceWorksAfterAFailure) {
  Buffer<int> out(64);
  Buffer<float> values(63);
  error_of([&] { HEADSCOPE_LAUNCH(misuse::deadlock, 1, 64, 0, nullptr, out.data()); });
  HEADSCOPE_LAUNCH(misuse::uninitialised_shared, 1, 63, 0, nullptr, values.data());
  EXPECT_EQ(values[3], 1.f);
}

// ---------------------------------------------------------------- races

#ifdef HEADSCOPE_EMULATION_TSAN

// ThreadSanitizer reports and goes on; halted in a child, its exit status shows the race.
template <typename Launch>
void expect_race(Launch launch) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT((launch(), std::exit(0)), ::testing::ExitedWithCode(66), "data race");
}

TEST(Races, AreReportedByThreadSanitizer) {
  Buffer<float> out(128);
  out.zero();
  expect_race([&] { HEADSCOPE_LAUNCH(misuse::missing_barrier, 1, 128, 0, nullptr, out.data()); });
  expect_race(
      [&] { HEADSCOPE_LAUNCH(misuse::missing_second_barrier, 1, 64, 0, nullptr, out.data()); });
  expect_race([&] { HEADSCOPE_LAUNCH(misuse::blocks_race, 2, 32, 0, nullptr, out.data()); });
}

#else

TEST(Races, ShowInSomeThreadOrder) {
  Buffer<float> out(128);
  int seen_first = 0, seen_second = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const OrderScope scope({"random", Order::kRandom, seed});
    HEADSCOPE_LAUNCH(misuse::missing_barrier, 1, 128, 0, nullptr, out.data());
    bool is_wrong = false;
    for (std::size_t i = 0; i < 128; ++i)
      is_wrong |= !(out[i] == static_cast<float>((i + 32) % 128));
    seen_first += is_wrong;
    HEADSCOPE_LAUNCH(misuse::missing_second_barrier, 1, 64, 0, nullptr, out.data());
    is_wrong = false;
    for (std::size_t i = 0; i < 64; ++i) is_wrong |= !(out[i] == 10.f);
    seen_second += is_wrong;
  }
  EXPECT_GT(seen_first, 10);
  EXPECT_GT(seen_second, 10);
}

#endif

#ifdef __SANITIZE_ADDRESS__

TEST(Overruns, AreReportedByAddressSanitizer) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Buffer<float> out(32);
  EXPECT_DEATH(HEADSCOPE_LAUNCH(misuse::static_shared_overrun, 1, 32, 0, nullptr, out.data(), 1),
               "heap-buffer-overflow|out of bounds");
  EXPECT_DEATH(HEADSCOPE_LAUNCH(misuse::dynamic_shared_overrun, 1, 32, 128, nullptr, out.data(), 1),
               "heap-buffer-overflow");
  EXPECT_DEATH(HEADSCOPE_LAUNCH(misuse::global_overrun, 1, 32, 0, nullptr, out.data(), 1),
               "heap-buffer-overflow");
}

#endif

}  // namespace
}  // namespace headscope::emulation
