#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "headscope/screen_batches.h"
#include "tests/support/errors.h"

namespace headscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

/// A document of distinct tokens from `from` on, with some replaced.
std::vector<int64_t> document(int64_t length, int64_t from,
                              std::vector<std::pair<int64_t, int64_t>> replaced) {
  std::vector<int64_t> tokens(static_cast<size_t>(length));
  std::iota(tokens.begin(), tokens.end(), from);
  for (const auto& [position, token] : replaced) tokens[static_cast<size_t>(position)] = token;
  return tokens;
}

NaturalInductionOptions short_rows() {
  return {.context = 32, .lowest_token = 100, .filler = 4, .first_position = 2};
}

NaturalInductionOptions short_reference_rows() {
  NaturalInductionOptions options = NaturalInductionOptions::reference();
  options.context = 32;
  options.filler = 4;
  return options;
}

TEST(NaturalInduction, FindsAPairWhoseSuccessorComesAgain) {
  const auto row = document(32, 200, {{5, 900}, {6, 901}, {20, 900}, {21, 901}});
  const auto batch = natural_induction_batch(row, {}, short_rows());
  EXPECT_THAT(batch.first, ElementsAre(5));
  EXPECT_THAT(batch.query, ElementsAre(20));
  EXPECT_THAT(batch.target_token, ElementsAre(901));
  EXPECT_TRUE(batch.tokens[0].equal(at::tensor(row, at::kLong)));
}

TEST(NaturalInduction, ChecksWhatFollowsUnlessReference) {
  const auto row = document(32, 200, {{5, 900}, {6, 901}, {20, 900}});
  EXPECT_THAT(natural_induction_batch(row, {}, short_reference_rows()).query, ElementsAre(20));
  EXPECT_THAT(
      error_of<std::invalid_argument>([&] { natural_induction_batch(row, {}, short_rows()); }),
      HasSubstr("none of 1 documents gave a row: 0 are shorter than 32 tokens, 1 have no such"));
}

TEST(NaturalInduction, TakesTheLatestRepeatInReferenceMode) {
  const auto row = document(32, 200, {{5, 900}, {8, 900}, {20, 900}, {31, 900}});
  const auto batch = natural_induction_batch(row, {}, short_reference_rows());
  EXPECT_THAT(batch.first, ElementsAre(5));
  EXPECT_THAT(batch.query, ElementsAre(31));  // the last token: nothing follows it
}

TEST(NaturalInduction, LeavesOutTokensWithSeveralEarlierOccurrences) {
  const auto row =
      document(32, 200, {{5, 900}, {6, 901}, {9, 900}, {20, 900}, {21, 901}, {10, 950}, {25, 950}});
  auto options = short_rows();
  EXPECT_THROW(natural_induction_batch(row, {}, options), std::invalid_argument);
  options.single_earlier = false;
  EXPECT_THAT(natural_induction_batch(row, {}, options).query, ElementsAre(20));
}

TEST(NaturalInduction, KeepsToTokensFillerAndPosition) {
  auto options = short_reference_rows();
  const auto rare = document(32, 200, {{5, 99}, {20, 99}, {7, 950}, {25, 950}});
  EXPECT_THAT(natural_induction_batch(rare, {}, options).first, ElementsAre(7));
  const auto near = document(32, 200, {{5, 900}, {9, 900}, {7, 950}, {25, 950}});  // filler of 3
  EXPECT_THAT(natural_induction_batch(near, {}, options).first, ElementsAre(7));
  const auto double_token = document(32, 200, {{5, 900}, {6, 900}, {20, 900}});
  EXPECT_THAT(natural_induction_batch(double_token, {}, options).first, ElementsAre(6));
  options.first_position = 7;
  const auto early = document(32, 200, {{5, 900}, {20, 900}, {7, 950}, {25, 950}});
  EXPECT_THAT(natural_induction_batch(early, {}, options).first, ElementsAre(7));
}

TEST(NaturalInduction, TakesTheFirstTokensOfEachDocument) {
  std::vector<int64_t> stream, documents = {0};
  for (int64_t d = 0; d < 4; ++d) {
    const int64_t length = d == 1 ? 31 : 40;  // the second is too short
    const auto tokens =
        document(length, 1000 * (d + 1), {{5, 900 + d}, {6, 801}, {20, 900 + d}, {21, 801}});
    stream.insert(stream.end(), tokens.begin(), tokens.end());
    documents.push_back(static_cast<int64_t>(stream.size()));
  }
  auto options = short_rows();
  const auto batch = natural_induction_batch(stream, documents, options);
  EXPECT_TRUE(batch.tokens.select(1, 5).equal(at::tensor({900, 902, 903}, at::kLong)));
  EXPECT_EQ(batch.documents_short, 1);
  EXPECT_EQ(batch.documents_without_pair, 0);
  options.examples = 2;
  EXPECT_EQ(natural_induction_batch(stream, documents, options).tokens.size(0), 2);
  // numpy's RandomState(3).permutation(4) is 3, 1, 0, 2.
  options.shuffle_seed = 3;
  EXPECT_TRUE(natural_induction_batch(stream, documents, options)
                  .tokens.select(1, 5)
                  .equal(at::tensor({903, 900}, at::kLong)));
}

TEST(NaturalInduction, CutsAStreamWithoutDocumentsIntoRows) {
  auto stream = document(32, 2000, {{5, 900}, {6, 801}, {20, 900}, {21, 801}});
  const auto second = document(40, 3000, {{7, 901}, {8, 801}, {22, 901}, {23, 801}});
  stream.insert(stream.end(), second.begin(), second.end());
  const auto batch = natural_induction_batch(stream, {}, short_rows());
  EXPECT_THAT(batch.first, ElementsAre(5, 7));
}

TEST(NaturalInduction, RefusesWithValueAndFix) {
  const std::vector<int64_t> stream(64, 200);
  const auto refused = [&](NaturalInductionOptions options, std::vector<int64_t> documents,
                           const char* message) {
    EXPECT_THAT(error_of<std::invalid_argument>(
                    [&] { natural_induction_batch(stream, documents, options); }),
                HasSubstr(message));
  };
  auto options = short_rows();
  refused(options, {0, 40, 30}, "entry 2 is 30");
  refused(options, {0, 65}, "within the stream's 64 tokens; entry 1 is 65");
  options.first_position = 26;
  refused(options, {}, "[0, context - 2 - filler) = [0, 26), got 26");
  options = short_rows();
  options.context = 65;
  refused(options, {}, "the stream has 64 tokens, fewer than one row of 65");
  options.examples = 0;
  refused(options, {}, "examples must be at least 1, got 0");
}

}  // namespace
}  // namespace headscope
