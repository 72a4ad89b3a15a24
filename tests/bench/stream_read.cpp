#include "tests/bench/stream_read.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/bench/stream_read.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace headscope::bench::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

double sum_of(const float* data, int64_t n) {
  const hn::ScalableTag<float> tag;
  const auto lanes = static_cast<int64_t>(hn::Lanes(tag));
  // Eight independent sums: the adds of one would be the bound, not the memory.
  auto s0 = hn::Zero(tag), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0, s7 = s0;
  constexpr int64_t kAhead = 2048;  // floats; the hardware's prefetcher stops at every page
  int64_t i = 0;
  for (; i + 8 * lanes <= n; i += 8 * lanes) {
    for (int64_t line = 0; line < 8 * lanes; line += 16) hwy::Prefetch(data + i + kAhead + line);
    s0 = hn::Add(s0, hn::LoadU(tag, data + i));
    s1 = hn::Add(s1, hn::LoadU(tag, data + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(tag, data + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(tag, data + i + 3 * lanes));
    s4 = hn::Add(s4, hn::LoadU(tag, data + i + 4 * lanes));
    s5 = hn::Add(s5, hn::LoadU(tag, data + i + 5 * lanes));
    s6 = hn::Add(s6, hn::LoadU(tag, data + i + 6 * lanes));
    s7 = hn::Add(s7, hn::LoadU(tag, data + i + 7 * lanes));
  }
  const auto total =
      hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)), hn::Add(hn::Add(s4, s5), hn::Add(s6, s7)));
  double sum = static_cast<double>(hn::GetLane(hn::SumOfLanes(tag, total)));
  for (; i < n; ++i) sum += static_cast<double>(data[i]);
  return sum;
}

}  // namespace headscope::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace headscope::bench {

HWY_EXPORT(sum_of);

double stream_read(const float* data, int64_t n) { return HWY_DYNAMIC_DISPATCH(sum_of)(data, n); }

}  // namespace headscope::bench
#endif
