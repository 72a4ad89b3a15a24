#include "plugin/examples/text/tokenizer.h"

#include <gmock/gmock.h>

#include <stdexcept>
#include <string>

namespace headscope::demo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Tokenizer, SplitsAsTheRecipesExpressionDoes) {
  EXPECT_THAT(split_pieces("To be\n  or_not .x 12  y,é"),
              ElementsAre("To", " be", "\n  ", "or", "_not", " ", ".x", " ", "1", "2", "  ", "y",
                          ",", "\xc3", "\xa9"));
}

TEST(Tokenizer, SplitsTheEmptyTextIntoNothing) { EXPECT_TRUE(split_pieces("").empty()); }

TEST(Tokenizer, NumbersBytesFirstThenPiecesByCountThenByByte) {
  const Tokenizer tokenizer("ab ab cd cd ef", 512);
  // Bytes: ' ' a b c d e f. Pieces: " cd" twice, then once each " ab", " ef", "ab".
  EXPECT_EQ(tokenizer.vocab_size(), 7 + 4);
  EXPECT_EQ(tokenizer.piece(0), " ");
  EXPECT_EQ(tokenizer.piece(7), " cd");
  EXPECT_EQ(tokenizer.piece(8), " ab");
  EXPECT_EQ(tokenizer.piece(9), " ef");
  EXPECT_EQ(tokenizer.piece(10), "ab");
}

TEST(Tokenizer, StopsAtTheVocabularysBound) {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text +=
        std::string(1, static_cast<char>('a' + i / 20)) + static_cast<char>('a' + i % 20) + "\n";
  EXPECT_EQ(Tokenizer(text, 256).vocab_size(), 256);
}

TEST(Tokenizer, FallsBackToBytesOutsideTheVocabulary) {
  const Tokenizer tokenizer("abc", 512);
  const auto tokens = tokenizer.encode("cab");
  EXPECT_THAT(tokens, ElementsAre(2, 0, 1));
}

TEST(Tokenizer, GivesEveryByteBack) {
  std::string text = "The cat sat.\n  The cat ran_far ";
  for (int byte = 0; byte < 256; ++byte) text += static_cast<char>(byte);
  const Tokenizer tokenizer(text, 300);
  std::string joined;
  for (const int64_t token : tokenizer.encode(text)) joined += tokenizer.piece(token);
  EXPECT_EQ(joined, text);
}

TEST(Tokenizer, NamesAByteItHasNeverSeen) {
  const Tokenizer tokenizer("abc", 512);
  try {
    tokenizer.encode("z");
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("byte 122"));
  }
}

}  // namespace
}  // namespace headscope::demo
