#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/device.cuh"
#include "kernels/launch.h"
#include "tests/emulation/emulated.h"

// A layer's worth of accumulate_gram_: hostile input, outputs between guards, a double reference.
namespace headscope::emulation {

enum class GramLayoutOfZ { kContiguous, kTransposedView, kPaddedSlice, kExpandedBatch };
enum class GramValues { kNormal, kIntegers, kLargeMean };

struct GramCase {
  int batch = 1, heads = 1, tokens = 1, width = 1;
  kernels::ElementType type = kernels::ElementType::kBFloat16;
  GramLayoutOfZ layout = GramLayoutOfZ::kContiguous;
  bool has_keep = false, has_shift = false;
  GramValues values = GramValues::kNormal;
  bool rounds_shift = false;  // to bf16: z - shift then has few bits
};

inline std::string name_of(const GramCase& c) {
  static constexpr const char* kTypes[] = {"bf16", "f16", "f32"};
  static constexpr const char* kLayouts[] = {"contiguous", "transposed", "padded", "expanded"};
  return std::string(kTypes[static_cast<int>(c.type)]) + "_b" + std::to_string(c.batch) + "_h" +
         std::to_string(c.heads) + "_t" + std::to_string(c.tokens) + "_d" +
         std::to_string(c.width) + "_" + kLayouts[static_cast<int>(c.layout)] +
         (c.has_keep ? "_keep" : "") + (c.has_shift ? "_shift" : "");
}
inline std::ostream& operator<<(std::ostream& out, const GramCase& c) { return out << name_of(c); }

/// Tiles are 32 tokens in a ring of three, padded widths 16, 32, 64, 96, 128, 256: below, at and
/// above them, and single everything. Under ThreadSanitizer only what has few threads.
inline std::vector<GramCase> hostile_grams() {
  using kernels::ElementType;
  using Layout = GramLayoutOfZ;
  std::vector<GramCase> cases;
  for (const ElementType type :
       {ElementType::kBFloat16, ElementType::kFloat16, ElementType::kFloat32}) {
    for (const bool is_shifted : {false, true}) {
      cases.push_back({1, 1, 211, 32, type, Layout::kTransposedView, true, is_shifted});
      if (kIsRaceChecked) continue;
      cases.push_back({1, 1, 1, 1, type, Layout::kContiguous, false, is_shifted});
      cases.push_back({2, 1, 65, 17, type, Layout::kPaddedSlice, true, is_shifted});
      cases.push_back({1, 2, 161, 16, type, Layout::kTransposedView, false, is_shifted});
      cases.push_back({2, 3, 31, 7, type, Layout::kTransposedView, true, is_shifted});
      cases.push_back({3, 2, 33, 24, type, Layout::kExpandedBatch, true, is_shifted});
      cases.push_back({1, 2, 195, 64, type, Layout::kTransposedView, true, is_shifted});
      cases.push_back({2, 1, 53, 80, type, Layout::kContiguous, false, is_shifted});
      cases.push_back({1, 1, 130, 128, type, Layout::kTransposedView, true, is_shifted});
    }
  }
  if (kIsRaceChecked) {
    cases.push_back({2, 1, 65, 17, ElementType::kFloat32, Layout::kPaddedSlice, true, true});
    return cases;
  }
  cases.push_back({1, 1, 97, 256, ElementType::kBFloat16, Layout::kContiguous, true, false});
  cases.push_back({1, 1, 33, 255, ElementType::kBFloat16, Layout::kContiguous, true, true});
  cases.push_back({1, 1, 65, 192, ElementType::kFloat32, Layout::kTransposedView, true, true});
  cases.push_back({2, 1, 1040, 16, ElementType::kBFloat16, Layout::kTransposedView, true, true});
  return cases;
}

class GramLayer {
 public:
  GramLayer(const GramCase& c, std::uint64_t seed) : case_(c), random_(seed) {
    lay_out();
    storage_ = std::make_unique<Buffer<unsigned char>>(elements_ * element_bytes());
    keep_ = std::make_unique<Buffer<unsigned char>>(rows() * 3);
    keep_->zero();
    for (int n = 0; n < static_cast<int>(rows()); ++n)
      (*keep_)[3 * static_cast<std::size_t>(n)] =
          c.values == GramValues::kIntegers || random_() % 4 != 0;
    shift_ = std::make_unique<Buffer<float>>(static_cast<std::size_t>(c.heads * c.width));
    for (float& value : *shift_) {
      value = static_cast<float>(draw_shift());
      if (c.rounds_shift) value = __bfloat162float(__float2bfloat16(value));
    }
    for_each_element([&](int b, int h, int t, int i) {
      if (c.layout != GramLayoutOfZ::kExpandedBatch || b == 0) write(b, h, t, i, draw(h, i));
    });
    const auto heads = static_cast<std::size_t>(c.heads), width = static_cast<std::size_t>(c.width);
    gram_ = std::make_unique<Buffer<float>>(heads * width * width + kGuard);
    sum_ = std::make_unique<Buffer<float>>(heads * width + kGuard);
    trace_ = std::make_unique<Buffer<float>>(heads + kGuard);
    norm_ = std::make_unique<Buffer<float>>(heads + kGuard);
    reset();
  }

  /// Zero sums, and guards of NaN after each output.
  void reset() {
    for (Buffer<float>* const output : {gram_.get(), sum_.get(), trace_.get(), norm_.get()}) {
      output->fill_bytes(0xFF);
      for (std::size_t i = 0; i + kGuard < output->size(); ++i) (*output)[i] = 0;
    }
    count_ = 0;
  }

  kernels::GramProblem problem() {
    kernels::GramProblem p;
    p.z = storage_->data() + offset_ * element_bytes();
    p.z_batch_stride = strides_[0];
    p.z_head_stride = strides_[1];
    p.z_token_stride = strides_[2];
    p.z_width_stride = strides_[3];
    if (case_.has_keep) {
      p.keep = reinterpret_cast<const bool*>(keep_->data());
      p.keep_batch_stride = 3 * case_.tokens;
      p.keep_token_stride = 3;
    }
    if (case_.has_shift) p.shift = shift_->data();
    p.gram = gram_->data();
    p.sum = sum_->data();
    p.count = &count_;
    p.trace = trace_->data();
    p.squared_norm = norm_->data();
    p.batch = case_.batch;
    p.heads = case_.heads;
    p.tokens = case_.tokens;
    return p;
  }

  const GramCase& description() const { return case_; }
  float gram(int h, int i, int j) const { return (*gram_)[index(h, i, j)]; }

  /// Everything written, for comparisons bit for bit.
  std::vector<float> results() const {
    std::vector<float> all;
    for (const Buffer<float>* const output : {gram_.get(), sum_.get(), trace_.get(), norm_.get()})
      all.insert(all.end(), output->data(), output->data() + output->size() - kGuard);
    all.push_back(static_cast<float>(count_));
    return all;
  }

  void poison(int b, int h, int t, int i) { write(b, h, t, i, std::nan("")); }
  void poison_dropped_tokens() {
    for_each_element([&](int b, int h, int t, int i) {
      if (!counts(b, t)) poison(b, h, t, i);
    });
  }

  /// Within the bound of docs/kernels/gram.md, element by element; guards and count exact.
  void expect_matches_reference(const std::string& what) const { compare(1, false, what); }
  /// Bit for bit: every product and sum is an integer below 2^24.
  void expect_equals_reference(int calls = 1) const { compare(calls, true, "exact"); }

  double worst_relative_error_of_diagonal() const {
    double worst = 0;
    for (int h = 0; h < case_.heads; ++h) {
      for (int i = 0; i < case_.width; ++i) {
        const double want = reference(h, i, i).value;
        worst = std::max(worst, std::abs(gram(h, i, i) - want) / want);
      }
    }
    return worst;
  }

 private:
  static constexpr std::size_t kGuard = 64;
  struct Reference {
    double value = 0, magnitude = 0;
  };

  std::size_t element_bytes() const { return case_.type == kernels::ElementType::kFloat32 ? 4 : 2; }
  std::size_t rows() const { return static_cast<std::size_t>(case_.batch * case_.tokens); }
  std::size_t index(int h, int i, int j) const {
    return (static_cast<std::size_t>(h) * case_.width + static_cast<std::size_t>(i)) * case_.width +
           static_cast<std::size_t>(j);
  }
  bool counts(int b, int t) const {
    return !case_.has_keep || (*keep_)[static_cast<std::size_t>(3 * (b * case_.tokens + t))] != 0;
  }

  template <typename Visit>
  void for_each_element(Visit visit) {
    for (int b = 0; b < case_.batch; ++b)
      for (int h = 0; h < case_.heads; ++h)
        for (int t = 0; t < case_.tokens; ++t)
          for (int i = 0; i < case_.width; ++i) visit(b, h, t, i);
  }

  void lay_out() {
    const std::int64_t b = case_.batch, h = case_.heads, t = case_.tokens, d = case_.width;
    switch (case_.layout) {
      case GramLayoutOfZ::kContiguous:
        set_strides(b * h * t * d, 0, {h * t * d, t * d, d, 1});
        return;
      case GramLayoutOfZ::kTransposedView:
        set_strides(b * h * t * d, 0, {h * t * d, d, h * d, 1});
        return;
      case GramLayoutOfZ::kPaddedSlice:
        set_strides((b + 1) * (h + 1) * (t + 2) * (2 * d + 1), 3 * (2 * d + 1) + 1,
                    {(h + 1) * (t + 2) * (2 * d + 1), (t + 2) * (2 * d + 1), 2 * d + 1, 2});
        return;
      case GramLayoutOfZ::kExpandedBatch:
        set_strides(h * t * d, 0, {0, t * d, d, 1});
        return;
    }
  }
  void set_strides(std::int64_t elements, std::int64_t offset, std::vector<std::int64_t> strides) {
    elements_ = static_cast<std::size_t>(elements);
    offset_ = static_cast<std::size_t>(offset);
    strides_ = std::move(strides);
  }

  double normal() { return std::normal_distribution<double>()(random_); }
  double draw(int h, int i) {
    if (case_.values == GramValues::kIntegers) return static_cast<double>(random_() % 9) - 4;
    if (case_.values == GramValues::kLargeMean) return mean(h, i) + normal();
    return normal() * std::exp2(-(i % 7));
  }
  double draw_shift() {
    const auto i = drawn_shifts_++;
    if (case_.values == GramValues::kIntegers) return static_cast<double>(random_() % 9) - 4;
    if (case_.values == GramValues::kLargeMean)
      return mean(static_cast<int>(i) / case_.width, static_cast<int>(i) % case_.width) +
             0.1 * normal();
    return 0.3 * normal();
  }
  static double mean(int h, int i) { return (i % 2 == 0 ? 100 : -100) + h + i; }

  std::size_t place(int b, int h, int t, int i) const {
    return offset_ + static_cast<std::size_t>(b * strides_[0] + h * strides_[1] + t * strides_[2] +
                                              i * strides_[3]);
  }
  void write(int b, int h, int t, int i, double value) {
    const auto single = static_cast<float>(value);
    unsigned char* const target = storage_->data() + place(b, h, t, i) * element_bytes();
    if (case_.type == kernels::ElementType::kFloat32)
      *reinterpret_cast<float*>(target) = single;
    else if (case_.type == kernels::ElementType::kFloat16)
      *reinterpret_cast<__half*>(target) = __float2half(single);
    else
      *reinterpret_cast<__nv_bfloat16*>(target) = __float2bfloat16(single);
  }
  double centred(int b, int h, int t, int i) const {
    const unsigned char* const source = storage_->data() + place(b, h, t, i) * element_bytes();
    double value = 0;
    if (case_.type == kernels::ElementType::kFloat32)
      value = *reinterpret_cast<const float*>(source);
    else if (case_.type == kernels::ElementType::kFloat16)
      value = __half2float(*reinterpret_cast<const __half*>(source));
    else
      value = __bfloat162float(*reinterpret_cast<const __nv_bfloat16*>(source));
    const auto shift_index = static_cast<std::size_t>(h * case_.width + i);
    return value - (case_.has_shift ? static_cast<double>((*shift_)[shift_index]) : 0.0);
  }

  /// sum over kept tokens of left times right; j < 0: of left alone.
  Reference reference(int h, int i, int j) const {
    Reference out;
    for (int b = 0; b < case_.batch; ++b) {
      for (int t = 0; t < case_.tokens; ++t) {
        if (!counts(b, t)) continue;
        const double term = centred(b, h, t, i) * (j < 0 ? 1.0 : centred(b, h, t, j));
        out.value += term;
        out.magnitude += std::abs(term);
      }
    }
    return out;
  }

  /// Error of a sum over its sum of magnitudes, docs/kernels/gram.md. A step of 16 tokens truncates
  /// each product of parts (twice where hardware halves a step); its result is added with rounding,
  /// to at most 64 in registers, then once a window; the second pass rounds twice. Splitting z - c
  /// leaves 2^-16 of a factor with two terms, 2^-24 with three, and z - c itself is rounded.
  double relative_bound() const {
    const bool is_single = case_.type == kernels::ElementType::kFloat32;
    const double products = is_single ? 6 : case_.has_shift ? 4 : 1;
    const double steps = std::min(64.0, static_cast<double>(rows()) / 16 + 1);
    const double windows = static_cast<double>(rows()) / 1024 + 1;
    const double split = is_single ? std::exp2(-22) : case_.has_shift ? std::exp2(-15) : 0.0;
    return 2 * products * std::exp2(-23) + (steps + windows + 4) * std::exp2(-24) + split;
  }

  void compare(int calls, bool is_exact, const std::string& what) const {
    SCOPED_TRACE(name_of(case_) + ", " + what);
    const double bound = is_exact ? 0 : relative_bound();
    const bool is_empty = rows() == 0;
    const auto check = [&](float got, double want, double allowed, const std::string& where) {
      if (!(std::abs(got - want) <= allowed))
        ADD_FAILURE() << where << ": got " << got << ", want " << want << " within " << allowed;
    };
    for (int h = 0; h < case_.heads; ++h) {
      double trace = 0, squares = 0, trace_bound = 0, squares_bound = 0;
      const std::string head = "head " + std::to_string(h);
      for (int i = 0; i < case_.width && !::testing::Test::HasFailure(); ++i) {
        const Reference s = reference(h, i, -1);
        const auto at = static_cast<std::size_t>(h * case_.width + i);
        check((*sum_)[at], calls * s.value, bound * s.magnitude,
              head + " sum " + std::to_string(i));
        for (int j = 0; j < case_.width; ++j) {
          const Reference g = reference(h, i, j);
          const double want = calls * g.value, allowed = bound * g.magnitude;
          check(gram(h, i, j), want, allowed,
                head + " gram " + std::to_string(i) + "," + std::to_string(j));
          squares += want * want;
          squares_bound += (2 * std::abs(want) + allowed) * allowed;
          if (i == j) trace += want, trace_bound += allowed;
        }
      }
      if (is_empty || ::testing::Test::HasFailure()) continue;
      const auto at = static_cast<std::size_t>(h);
      check((*trace_)[at], trace, trace_bound + std::exp2(-23) * trace, head + " trace");
      check((*norm_)[at], squares, squares_bound + std::exp2(-23) * squares, head + " norm");
    }
    std::int64_t kept = 0;
    for (int b = 0; b < case_.batch; ++b) {
      for (int t = 0; t < case_.tokens; ++t) kept += counts(b, t);
    }
    EXPECT_EQ(count_, case_.heads == 0 ? 0 : calls * kept);
    for (const Buffer<float>* const output : {gram_.get(), sum_.get(), trace_.get(), norm_.get()}) {
      for (std::size_t i = output->size() - kGuard; i < output->size(); ++i)
        ASSERT_EQ(std::bit_cast<unsigned>((*output)[i]), 0xffffffffu) << "a guard was overwritten";
    }
  }

  GramCase case_;
  std::mt19937_64 random_;
  std::size_t elements_ = 0, offset_ = 0, drawn_shifts_ = 0;
  std::vector<std::int64_t> strides_;
  std::unique_ptr<Buffer<unsigned char>> storage_, keep_;
  std::unique_ptr<Buffer<float>> shift_, gram_, sum_, trace_, norm_;
  std::int64_t count_ = 0;
};

/// All layers in one call; they share width and type.
inline kernels::Status run_gram(const std::vector<GramLayer*>& layers,
                                int least_tokens_per_block = kernels::kGramTokensPerBlock) {
  std::vector<kernels::GramProblem> problems;
  for (GramLayer* const layer : layers) problems.push_back(layer->problem());
  const int count = static_cast<int>(problems.size());
  const GramCase& first = layers.front()->description();
  Buffer<unsigned char> workspace(
      kernels::gram_workspace_bytes(problems.data(), count, first.width, least_tokens_per_block));
  return kernels::launch_gram(problems.data(), count, first.width, first.type, workspace.data(),
                              workspace.size(), nullptr, least_tokens_per_block);
}

}  // namespace headscope::emulation
