#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>

namespace headscope::circuits {

/// NaN without values.
double mean(std::span<const double> values);

/// P(Student's t with `freedom` degrees > t), by the regularised incomplete beta function (relative
/// error below 1e-10 down to 1e-300). freedom > 0.
double student_tail(double t, double freedom);

/// The t with student_tail(t, freedom) = tail; 0 < tail <= 0.5.
double student_quantile(double tail, double freedom);

/// Uniform in [0, bound), by the high half of a product: its bias of bound / 2^64 is beyond
/// measuring.
inline size_t draw_below(std::mt19937_64& engine, size_t bound) {
  return static_cast<size_t>((static_cast<unsigned __int128>(engine()) * bound) >> 64);
}

struct Interval {
  double low, high;
};

/// Bootstrap interval of a mean over `examples`: percentiles of `resamples` values of `draw`, at
/// tails widened for small samples, Phi(-sqrt(n / (n - 1)) t_{tail, n - 1}), where plain
/// percentiles are too narrow ("expanded percentile", Hesterberg 2015). draw(engine) gives the mean
/// of one resample.
Interval bootstrap_interval(size_t examples, double confidence, int64_t resamples, uint64_t seed,
                            const std::function<double(std::mt19937_64&)>& draw);

}  // namespace headscope::circuits
