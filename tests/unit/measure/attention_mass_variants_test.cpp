#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "headscope/measure.h"
#include "tests/support/errors.h"
#include "tests/support/numeric/attention_rows.h"
#include "tests/support/numeric/hostile.h"

// Everything that a call may say about its scores, alone and together, against the double
// reference.
namespace headscope {
namespace {

using testing::error_of;
using testing::expect_outputs;
using testing::expect_rows;
using ::testing::HasSubstr;
using testing::make_hostile;
using testing::some_rows;

constexpr float kNanFloat = std::numeric_limits<float>::quiet_NaN();

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed, at::ScalarType type = at::kFloat) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed), at::kDouble).to(type);
}

/// Documents of lengths 1, 2, 3, .. from the start of each row; the second row starts at 2.
at::Tensor some_documents(int64_t batch, int64_t tokens) {
  at::Tensor documents = at::empty({batch, tokens}, at::kLong);
  for (int64_t b = 0; b < batch; ++b) {
    int64_t length = 1 + b, left = length, id = 7 * b;
    for (int64_t t = 0; t < tokens; ++t) {
      documents[b][t] = id;
      if (--left == 0) left = ++length, ++id;
    }
  }
  return documents;
}

struct Variant {
  const char* name;
  AttentionCall (*call)(int64_t batch, int64_t heads, int64_t tokens);
};

const Variant kVariants[] = {
    {"window_of_one", [](int64_t, int64_t, int64_t) { return AttentionCall{.window = 1}; }},
    {"window", [](int64_t, int64_t, int64_t) { return AttentionCall{.window = 5}; }},
    {"window_beyond_the_row",
     [](int64_t, int64_t, int64_t tokens) { return AttentionCall{.window = tokens}; }},
    {"largest_window",
     [](int64_t, int64_t, int64_t) {
       return AttentionCall{.is_causal = false, .window = std::numeric_limits<int64_t>::max()};
     }},
    {"window_both_ways",
     [](int64_t, int64_t, int64_t) { return AttentionCall{.is_causal = false, .window = 3}; }},
    {"softcap", [](int64_t, int64_t, int64_t) { return AttentionCall{.scale = 2, .softcap = 3}; }},
    {"documents",
     [](int64_t batch, int64_t, int64_t tokens) {
       return AttentionCall{.documents = some_documents(batch, tokens)};
     }},
    {"documents_both_ways",
     [](int64_t batch, int64_t, int64_t tokens) {
       return AttentionCall{.is_causal = false, .documents = some_documents(batch, tokens)};
     }},
    {"sinks",
     [](int64_t, int64_t heads, int64_t) { return AttentionCall{.sinks = normal({heads}, 41)}; }},
    {"everything",
     [](int64_t batch, int64_t heads, int64_t tokens) {
       return AttentionCall{.bias = normal({heads, tokens, tokens}, 42),
                            .scale = 0.9,
                            .softcap = 4,
                            .window = 6,
                            .documents = some_documents(batch, tokens),
                            .sinks = normal({heads}, 43).to(at::kBFloat16)};
     }},
    {"masked_and_capped",
     [](int64_t, int64_t heads, int64_t tokens) {
       return AttentionCall{.bias = normal({heads, tokens, tokens}, 44) > 0,
                            .softcap = 2,
                            .window = 4,
                            .sinks = normal({heads}, 45)};
     }},
};

class AttentionVariant : public ::testing::TestWithParam<Variant> {};

TEST_P(AttentionVariant, MatchesDoubleReferenceInEveryLayoutAndDtype) {
  for (const auto& c : testing::hostile_cases()) {
    SCOPED_TRACE(testing::describe(c));
    const at::Tensor q = make_hostile(c, 51), k = make_hostile(c, 52), v = make_hostile(c, 53);
    const AttentionCall call = GetParam().call(c.batch, c.heads, c.tokens);
    for (const int64_t sampled : {3, 9}) {
      const at::Tensor rows = some_rows(c.batch, c.tokens, sampled);
      expect_rows(q, k, rows, call);
      expect_outputs(q, k, v, rows, call);
    }
  }
}

TEST_P(AttentionVariant, MatchesDoubleReferenceOfGroupedHeadsAndLatentWidths) {
  const at::Tensor q = normal({2, 14, 11, 192}, 54), k = normal({2, 2, 11, 192}, 55),
                   v = normal({2, 2, 11, 128}, 56);
  const AttentionCall call = GetParam().call(2, 14, 11);
  expect_rows(q, k, some_rows(2, 11), call);
  expect_outputs(q, k, v, some_rows(2, 11), call);
}

TEST_P(AttentionVariant, IsTheSameForEveryLayoutOfTheSameValues) {
  for (const testing::Layout layout :
       {testing::Layout::kTransposedView, testing::Layout::kPaddedSlice,
        testing::Layout::kExpandedBatch}) {
    const testing::HostileCase c{2, 3, 17, 5, at::kFloat, layout};
    const at::Tensor q = make_hostile(c, 57), k = make_hostile(c, 58), v = make_hostile(c, 59);
    const AttentionCall call = GetParam().call(2, 3, 17);
    AttentionCall sliced = call;
    if (call.documents)
      sliced.documents = at::stack({*call.documents, *call.documents}, 2).select(2, 1);
    if (call.bias) sliced.bias = at::stack({*call.bias, *call.bias}, -1).select(-1, 0);
    const at::Tensor rows = some_rows(2, 17);
    const at::Tensor want =
        recompute_rows(q.contiguous(), k.contiguous(), v.contiguous(), rows, call);
    // The order of a vectorised sum depends on the stride: equal but for rounding.
    EXPECT_TRUE(
        recompute_rows(q, k, v, rows, sliced).allclose(want, 1e-5, 1e-6, /*equal_nan=*/true));
  }
}

TEST_P(AttentionVariant, AgreesWithTheFusedKernelUnderTheEqualMask) {
  const int64_t tokens = 33;
  AttentionCall call = GetParam().call(2, 3, tokens);
  call.softcap = 0;  // no fused counterpart here: caps and sinks are held to the double reference
  call.sinks = std::nullopt;
  call.bias = std::nullopt;
  const at::Tensor q = normal({2, 3, tokens, 16}, 60), k = normal({2, 3, tokens, 16}, 61),
                   v = normal({2, 3, tokens, 8}, 62);
  const at::Tensor z = at::scaled_dot_product_attention(
      q, k, v, testing::visible_keys(call, 2, tokens), 0.0, false, call.scale);
  const at::Tensor rows = at::arange(tokens, at::kLong).repeat({2, 1});
  testing::expect_within(recompute_rows(q, k, v, rows, call), z, testing::scalar(1e-5));
}

INSTANTIATE_TEST_SUITE_P(Calls, AttentionVariant, ::testing::ValuesIn(kVariants),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(AttentionVariants, LogitsOfAHundredThousandStayExact) {
  const at::Tensor q = normal({1, 2, 9, 4}, 63, at::kDouble) * 1e3,
                   k = normal({1, 2, 9, 4}, 64, at::kDouble) * 1e2;
  const at::Tensor rows = some_rows(1, 9);
  expect_rows(q, k, rows, {.window = 4, .sinks = at::full({2}, 1e5)}, 1e6);
  expect_rows(q, k, rows, {.softcap = 30, .documents = some_documents(1, 9)}, 1e6);
  const AttentionRows capped =
      attention_mass(q.to(at::kFloat), k.to(at::kFloat), rows, at::zeros({0}, at::kLong),
                     at::zeros({1}, at::kLong), 0, {.softcap = 30});
  EXPECT_LE(capped.max_logit[0][0][2].item<double>(), 30.0);
}

TEST(AttentionVariants, HiddenKeysAreNeverRead) {
  at::Tensor q = normal({1, 1, 8, 3}, 65), k = normal({1, 1, 8, 3}, 66),
             v = normal({1, 1, 8, 3}, 67);
  for (at::Tensor* tensor : {&k, &v}) tensor->narrow(2, 0, 4).fill_(kNanFloat);
  const at::Tensor rows = at::full({1, 1}, 7, at::kLong);
  const at::Tensor documents = at::tensor({0, 0, 0, 0, 1, 1, 1, 1}, at::kLong).view({1, 8});
  for (const AttentionCall& call :
       {AttentionCall{.window = 4}, AttentionCall{.documents = documents}}) {
    EXPECT_TRUE(recompute_rows(q, k, v, rows, call).isfinite().all().item<bool>());
  }
}

TEST(AttentionVariants, ASinkTakesItsShareFromEveryKey) {
  const at::Tensor zero = at::zeros({1, 1, 3, 2}), rows = at::full({1, 1}, 2, at::kLong);
  const at::Tensor all = at::arange(3, at::kLong), offsets = at::tensor({0, 3}, at::kLong);
  const AttentionRows got =
      attention_mass(zero, zero, rows, all, offsets, 1, {.sinks = at::zeros({1})});
  EXPECT_FLOAT_EQ(got.mass.item<float>(), 0.75);  // three keys and the sink, alike
  EXPECT_FLOAT_EQ(got.first_mass.item<float>(), 0.25);
  EXPECT_FLOAT_EQ(got.entropy.item<float>(), std::log(4.0f));
  EXPECT_FLOAT_EQ(got.log_sum_exp.item<float>(), std::log(4.0f));
  EXPECT_EQ(got.max_logit.item<float>(), 0);
  const AttentionRows broken =
      attention_mass(zero, zero, rows, all, offsets, 1, {.sinks = at::full({1}, kNanFloat)});
  EXPECT_TRUE(std::isnan(broken.log_sum_exp.item<float>()));
}

TEST(AttentionVariants, ARowWithoutKeysIsMarkedWhateverTheSink) {
  const at::Tensor q = normal({1, 2, 4, 3}, 68), rows = at::full({1, 1}, 3, at::kLong);
  const AttentionCall call{.bias = at::zeros({4, 4}, at::kBool), .sinks = at::ones({2})};
  expect_rows(q, q, rows, call);
  expect_outputs(q, q, q, rows, call);
}

TEST(AttentionVariants, AreRefusedByName) {
  const at::Tensor q = at::zeros({2, 4, 6, 8}), k = at::zeros({2, 2, 6, 8});
  const auto refusal = [&](const at::Tensor& query, const at::Tensor& key,
                           const AttentionCall& call) {
    return error_of([&] { recompute_rows(query, key, key, at::zeros({2, 1}, at::kLong), call); });
  };
  EXPECT_THAT(refusal(q, k, {.softcap = -1}), HasSubstr("softcap must be 0 (none) or"));
  EXPECT_THAT(refusal(q, k, {.softcap = std::nan("")}), HasSubstr("softcap must be 0 (none) or"));
  EXPECT_THAT(refusal(q, k, {.scale = std::nan("")}), HasSubstr("scale must be finite"));
  EXPECT_THAT(refusal(q, k, {.window = -2}), HasSubstr("window must be 0 (none)"));
  EXPECT_THAT(refusal(q, k, {.documents = at::zeros({2, 5}, at::kLong)}),
              HasSubstr("documents must be int64 [B, T] = [2, 6], got [2, 5]"));
  EXPECT_THAT(refusal(q, k, {.documents = at::zeros({2, 6})}),
              HasSubstr("documents must be int64 [B, T] = [2, 6], got [2, 6] of Float"));
  EXPECT_THAT(refusal(q.narrow(2, 0, 3), k, {.documents = at::zeros({2, 6}, at::kLong)}),
              HasSubstr("documents need as many queries as keys, got 3 and 6"));
  EXPECT_THAT(refusal(q, k, {.sinks = at::zeros({2})}),
              HasSubstr("sinks must be one float a query head, [Hq] = [4], got [2]"));
  EXPECT_THAT(refusal(q, k, {.sinks = at::zeros({4}, at::kLong)}), HasSubstr("of Long"));
  EXPECT_THAT(refusal(q.narrow(1, 0, 3), k, {}),
              HasSubstr("the 3 query heads must be a multiple of the 2 key-value heads"));
  for (const at::ScalarType type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2, at::kChar, at::kLong}) {
    EXPECT_THAT(refusal(q.to(type), k.to(type), {}),
                HasSubstr("q must be float64, float32, bfloat16 or float16, got"));
  }
}

TEST(AttentionVariants, TheSchemaTakesThemByName) {
  const at::Tensor q = at::zeros({2, 4, 6, 8}).to(at::kMeta);
  const at::Tensor rows = at::zeros({2, 3}, at::kLong).to(at::kMeta);
  const AttentionCall call{.softcap = 5,
                           .window = 2,
                           .documents = at::zeros({2, 6}, at::kLong).to(at::kMeta),
                           .sinks = at::zeros({4}).to(at::kMeta)};
  EXPECT_EQ(recompute_rows(q, q, q, rows, call).sizes(), at::IntArrayRef({2, 4, 3, 8}));
  EXPECT_THAT(error_of([&] { recompute_rows(q, q, q, rows, {.window = -1}); }),
              HasSubstr("window must be"));
}

}  // namespace
}  // namespace headscope
