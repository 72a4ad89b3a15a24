#include "plugin/examples/text/corpus.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "tests/support/errors.h"

namespace headscope::demo {
namespace {

using headscope::testing::error_of;
using ::testing::HasSubstr;

std::vector<int64_t> counting(int64_t count) {
  std::vector<int64_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

/// The period of a row of otherwise distinct tokens: where its first token comes again; 0: never.
int64_t period_of(const at::Tensor& row) {
  for (int64_t i = 1; i < row.size(0); ++i)
    if (row[i].item<int64_t>() == row[0].item<int64_t>()) return i;
  return 0;
}

TEST(Corpus, KeepsTheLastTwentiethForValidation) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += static_cast<char>('0' + i % 10);
  const Corpus corpus = make_corpus(text, "digits", 16);
  EXPECT_EQ(corpus.train.size(), 1900u);
  EXPECT_EQ(corpus.validation.size(), 100u);
}

TEST(Corpus, RefusesATextShorterThanAContext) {
  const std::string error =
      error_of<std::invalid_argument>([] { make_corpus("12345", "tiny.txt", 64); });
  EXPECT_THAT(error, HasSubstr("'tiny.txt' has 5 tokens"));
  EXPECT_THAT(error, HasSubstr("130"));
}

TEST(Corpus, NamesAFileThatIsNotThere) {
  EXPECT_THAT(error_of<std::invalid_argument>([] { read_text("no/such/file"); }),
              HasSubstr("no/such/file"));
  EXPECT_THAT(error_of<std::invalid_argument>([] { read_text(HEADSCOPE_SOURCE_DIR); }),
              HasSubstr("folder"));
}

TEST(Batches, AreCutFromTheTextWhenNoRowRepeats) {
  const auto tokens = counting(1000);
  const at::Tensor rows = BatchSource(tokens, 64, 64, 0.0, 1).next();
  EXPECT_EQ(rows.sizes(), at::IntArrayRef({64, 65}));
  EXPECT_TRUE(rows.diff().eq(1).all().item<bool>());
}

TEST(Batches, RepeatEveryEightToThirtyTwoTokens) {
  const auto tokens = counting(1000);
  const at::Tensor rows = BatchSource(tokens, 512, 64, 1.0, 1).next();
  int64_t shortest = 1000, longest = 0;
  for (int64_t b = 0; b < rows.size(0); ++b) {
    const int64_t period = period_of(rows[b]);
    ASSERT_GT(period, 0);
    EXPECT_TRUE(rows[b].slice(0, period).equal(rows[b].slice(0, 0, 65 - period)));
    shortest = std::min(shortest, period);
    longest = std::max(longest, period);
  }
  EXPECT_EQ(shortest, 8);
  EXPECT_EQ(longest, 32);
}

TEST(Batches, RepeatTheShareOfRowsThatWasAskedFor) {
  const auto tokens = counting(1000);
  const at::Tensor rows = BatchSource(tokens, 4000, 64, 0.5, 1).next();
  int64_t repeating = 0;
  for (int64_t b = 0; b < rows.size(0); ++b) repeating += period_of(rows[b]) > 0;
  // 6 standard deviations of a binomial count.
  EXPECT_NEAR(static_cast<double>(repeating), 2000.0, 190.0);
}

TEST(Batches, CanStartAtTheLastRowOfTheText) {
  const auto tokens = counting(65);
  EXPECT_EQ(BatchSource(tokens, 1, 64, 0.0, 1).next()[0][64].item<int64_t>(), 64);
}

TEST(Batches, FollowTheirSeedAlone) {
  const auto tokens = counting(1000);
  BatchSource first(tokens, 4, 64, 0.5, 7), second(tokens, 4, 64, 0.5, 7),
      other(tokens, 4, 64, 0.5, 8);
  at::rand({3});
  const at::Tensor rows = first.next();
  EXPECT_TRUE(rows.equal(second.next()));
  EXPECT_FALSE(rows.equal(other.next()));
}

TEST(Batches, LeaveTorchsGeneratorAlone) {
  const auto tokens = counting(1000);
  BatchSource batches(tokens, 4, 64, 0.5, 7);
  const at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  batches.next();
  EXPECT_TRUE(before.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
}

TEST(ConsecutiveRows, DoNotOverlapAndStopAtTheEnd) {
  const at::Tensor rows = consecutive_rows(counting(10), 3, 100);
  EXPECT_TRUE(rows.equal(at::arange(9).view({3, 3})));
}

}  // namespace
}  // namespace headscope::demo
