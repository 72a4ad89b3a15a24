#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>

#include "headscope/probe_batch.h"
#include "headscope/random_state.h"
#include "tests/support/errors.h"

namespace headscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// FNV-1a over 64-bit words from 1469598103934665603, the offset that the published digest was made
// with (the standard one has a digit more and gives f23697dac28f31f4).
uint64_t fnv1a_words(const at::Tensor& tokens) {
  uint64_t hash = 1469598103934665603u;
  for (int64_t i = 0; i < tokens.numel(); ++i) {
    hash = (hash ^ static_cast<uint64_t>(tokens.const_data_ptr<int64_t>()[i])) * 0x100000001b3u;
  }
  return hash;
}

// Digests of the published batch (protocol section 1).
TEST(InductionBatch, EqualsTheReferenceBitForBit) {
  const InductionBatch batch = induction_batch({});
  EXPECT_EQ(batch.tokens.sum().item<int64_t>(), 2583650843);
  EXPECT_EQ(batch.tokens.narrow(0, 0, 500).sum().item<int64_t>(), 647669588);
  EXPECT_EQ(std::accumulate(batch.target_token.begin(), batch.target_token.end(), int64_t{0}),
            9956176);
  EXPECT_EQ(std::accumulate(batch.pair_position.begin(), batch.pair_position.end(), int64_t{0}),
            146666);
  EXPECT_EQ(fnv1a_words(batch.tokens), 0x9fd0b2419009ad52u);
  EXPECT_EQ(batch.tokens[0][94].item<int64_t>(), 3766);
  EXPECT_EQ(batch.tokens[0][95].item<int64_t>(), 6188);
}

TEST(InductionBatch, FewerExamplesAreTheFirstOfMore) {
  EXPECT_TRUE(induction_batch({.examples = 40})
                  .tokens.equal(induction_batch({.examples = 90}).tokens.narrow(0, 0, 40)));
}

TEST(InductionBatch, PlantsOnePairAtEveryLength) {
  for (const int64_t context : {16, 17, 64, 100}) {
    const InductionBatch batch =
        induction_batch({.examples = 50, .context = context, .token_low = 3, .token_high = 400});
    for (int64_t n = 0; n < 50; ++n) {
      const at::Tensor row = batch.tokens[n];
      const int64_t position = batch.pair_position[static_cast<size_t>(n)];
      EXPECT_GE(position, 20 * context / 256);
      EXPECT_LT(position, context / 2);
      EXPECT_EQ(row[position].item<int64_t>(), row[context - 1].item<int64_t>());
      EXPECT_EQ(row[position + 1].item<int64_t>(), batch.target_token[static_cast<size_t>(n)]);
      EXPECT_GE(row.min().item<int64_t>(), 3);
      EXPECT_LT(row.max().item<int64_t>(), 400);
    }
  }
}

TEST(InductionBatch, RefusesWhatCannotBePlanted) {
  EXPECT_THAT(error_of<std::invalid_argument>([] { induction_batch({.context = 15}); }),
              HasSubstr("context must be at least 16"));
  EXPECT_THAT(
      error_of<std::invalid_argument>([] { induction_batch({.token_low = 5, .token_high = 8}); }),
      HasSubstr("[5, 8)"));
  EXPECT_THAT(error_of<std::invalid_argument>([] { induction_batch({.examples = 0}); }),
              HasSubstr("examples must be at least 1, got 0"));
}

TEST(InductionBatch, PlantsWithinTheWindow) {
  const InductionBatch batch = induction_batch({.examples = 200, .context = 256, .window = 64});
  for (const int64_t position : batch.pair_position) {
    EXPECT_GE(position, 256 - 64 + 5);
    EXPECT_LT(position, 256 - 64 + 32);
  }
  EXPECT_TRUE(induction_batch({.examples = 20, .context = 64, .window = 900})
                  .tokens.equal(induction_batch({.examples = 20, .context = 64}).tokens));
  for (const int64_t window : {-1, 1, 15}) {
    EXPECT_THAT(error_of<std::invalid_argument>([&] { induction_batch({.window = window}); }),
                HasSubstr("window must be 0 (none) or at least 16"));
    EXPECT_THAT(error_of<std::invalid_argument>(
                    [&] { resolved({.vocab_size = 512, .context = 64, .window = window}); }),
                HasSubstr("at least 16 to tell six patterns apart, got"));
  }
  for (const int64_t queries : {-1, 17}) {
    EXPECT_THAT(error_of<std::invalid_argument>([&] {
                  resolved({.vocab_size = 512, .context = 64, .position_queries = queries});
                }),
                HasSubstr("position_queries must be 0 to 16, got " + std::to_string(queries)));
  }
  EXPECT_THAT(
      error_of<std::invalid_argument>([] { induction_batch({.pair_low = 100, .window = 64}); }),
      HasSubstr("pair_low must lie in [192, 224)"));
}

TEST(ControlPositions, EqualTheReferencesDraw) {
  EXPECT_THAT(
      reference_control_positions(256),
      ElementsAre(173, 48, 118, 193, 68, 196, 104, 10, 212, 22, 243, 37, 88, 71, 217, 89, 141, 59,
                  194, 231, 40, 175, 82, 166, 26, 78, 73, 149, 116, 209, 244, 198, 80, 176, 83, 100,
                  178, 30, 148, 143, 168, 33, 186, 128, 32, 203, 245, 152, 164, 204));
}

TEST(ControlPositions, ShortContextsUseAllThereAre) {
  const auto positions = reference_control_positions(16);
  EXPECT_EQ(std::set<int64_t>(positions.begin(), positions.end()).size(), 9u);  // 1..9
  for (const int64_t t : positions) EXPECT_TRUE(t >= 1 && t <= 9);
}

TEST(RepeatedBlock, RepeatsTheFirstHalf) {
  const at::Tensor source = at::arange(12, at::kLong).view({2, 6});
  EXPECT_TRUE(
      repeated_block(source, 3, 8)[2].equal(at::tensor({0, 1, 2, 3, 0, 1, 2, 3}, at::kLong)));
  EXPECT_TRUE(
      repeated_block(source, 1, 9)[0].equal(at::tensor({0, 1, 2, 3, 0, 1, 2, 3, 0}, at::kLong)));
  EXPECT_TRUE(
      repeated_block(source, 1, 8, 3)[0].equal(at::tensor({0, 1, 2, 0, 1, 2, 0, 1}, at::kLong)));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { repeated_block(source, 1, 16); }),
              HasSubstr(">= 8], got [2, 6]"));
  EXPECT_THAT(error_of<std::invalid_argument>([&] { repeated_block(source, 1, 8, 5); }),
              HasSubstr("a period from 2 to context / 2 = 4, got 5"));
}

TEST(RandomTokens, AreUniformInTheirRangeAndRepeatable) {
  const at::Tensor tokens = random_tokens(200, 50, 7, 19, 5);
  EXPECT_EQ(tokens.min().item<int64_t>(), 7);
  EXPECT_EQ(tokens.max().item<int64_t>(), 18);
  EXPECT_TRUE(tokens.equal(random_tokens(200, 50, 7, 19, 5)));
  EXPECT_FALSE(tokens.equal(random_tokens(200, 50, 7, 19, 6)));
}

TEST(ProbeOptions, FillDefaultsFromTheVocabulary) {
  const ProbeOptions large = resolved({.vocab_size = 50257, .context = 256});
  EXPECT_EQ(large.token_low, 100);
  EXPECT_EQ(large.token_high, 10000);
  const ProbeOptions small = resolved({.vocab_size = 512, .context = 64});
  EXPECT_EQ(small.token_low, 51);
  EXPECT_EQ(small.token_high, 512);
}

TEST(ProbeOptions, RefuseWithValueAndFix) {
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [] { resolved({.vocab_size = 512, .context = 64, .token_high = 600}); }),
              HasSubstr("token_high 600 is above the vocabulary of 512 tokens"));
  EXPECT_THAT(error_of<std::invalid_argument>([] { resolved({.context = 64}); }),
              HasSubstr("vocab_size must be given"));
  EXPECT_THAT(error_of<std::invalid_argument>([] { resolved({.vocab_size = 512, .context = 8}); }),
              HasSubstr("at least 16, got 8"));
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [] { resolved({.vocab_size = 512, .context = 64, .examples = 0}); }),
              HasSubstr("examples"));
  EXPECT_THAT(
      error_of<std::invalid_argument>([] {
        resolved({.vocab_size = 512, .context = 64, .held_out = at::full({2, 64}, 512, at::kLong)});
      }),
      HasSubstr("held_out holds tokens outside"));
  EXPECT_THAT(error_of<std::invalid_argument>(
                  [] { resolved({.vocab_size = 512, .context = 64, .patterns = {}}); }),
              HasSubstr("pattern"));
}

}  // namespace
}  // namespace headscope
