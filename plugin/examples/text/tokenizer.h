#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace headscope::demo {

/// Splits text as `\n *|[ _.]?[A-Za-z]+|[0-9]| +|[^A-Za-z0-9]` would, first alternative first.
/// Works on bytes, so any file is text; the pieces joined give the text back.
std::vector<std::string_view> split_pieces(std::string_view text);

/// A word-piece vocabulary made from the text itself: every byte present, then the most frequent
/// longer pieces.
class Tokenizer {
 public:
  /// vocab_size: upper bound of the vocabulary, at least 256. Ties between pieces go by byte order.
  Tokenizer(std::string_view text, int64_t vocab_size);

  /// Token ids of `text`; pieces outside the vocabulary fall back to bytes. Throws
  /// std::invalid_argument on a byte that the vocabulary's text did not have.
  std::vector<int64_t> encode(std::string_view text) const;
  int64_t vocab_size() const { return static_cast<int64_t>(pieces_.size()); }
  /// The text of one token.
  const std::string& piece(int64_t token) const { return pieces_.at(static_cast<size_t>(token)); }

 private:
  void add(std::string piece);

  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int64_t> ids_;
};

}  // namespace headscope::demo
