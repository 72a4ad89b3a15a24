#include "plugin/examples/text/tokenizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

namespace headscope::demo {
namespace {

// Not std::isalpha: the locale must not change the vocabulary.
bool is_letter(char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

size_t skip_letters(std::string_view text, size_t at) {
  while (at < text.size() && is_letter(text[at])) ++at;
  return at;
}

size_t skip_spaces(std::string_view text, size_t at) {
  while (at < text.size() && text[at] == ' ') ++at;
  return at;
}

size_t end_of_piece(std::string_view text, size_t start) {
  const char first = text[start];
  if (first == '\n') return skip_spaces(text, start + 1);
  if (is_letter(first)) return skip_letters(text, start);
  if (first == ' ' || first == '_' || first == '.') {
    const size_t end = skip_letters(text, start + 1);
    if (end > start + 1) return end;
  }
  return first == ' ' ? skip_spaces(text, start) : start + 1;
}

}  // namespace

std::vector<std::string_view> split_pieces(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t start = 0; start < text.size();) {
    const size_t end = end_of_piece(text, start);
    pieces.push_back(text.substr(start, end - start));
    start = end;
  }
  return pieces;
}

Tokenizer::Tokenizer(std::string_view text, int64_t vocab_size) {
  if (vocab_size < 256)
    throw std::invalid_argument("Tokenizer: vocab_size " + std::to_string(vocab_size) +
                                " cannot hold every byte; give at least 256");
  const std::set<unsigned char> bytes(text.begin(), text.end());
  for (const unsigned char byte : bytes) add(std::string(1, static_cast<char>(byte)));

  std::map<std::string_view, int64_t> counts;  // ordered by byte, which breaks ties below
  for (const std::string_view piece : split_pieces(text))
    if (piece.size() > 1) ++counts[piece];
  std::vector<std::pair<std::string_view, int64_t>> by_count(counts.begin(), counts.end());
  std::stable_sort(by_count.begin(), by_count.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [piece, count] : by_count) {
    if (this->vocab_size() >= vocab_size) break;
    add(std::string(piece));
  }
}

void Tokenizer::add(std::string piece) {
  ids_.emplace(piece, vocab_size());
  pieces_.push_back(std::move(piece));
}

std::vector<int64_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int64_t> tokens;
  tokens.reserve(text.size() / 2);
  for (const std::string_view piece : split_pieces(text)) {
    if (const auto found = ids_.find(std::string(piece)); found != ids_.end()) {
      tokens.push_back(found->second);
      continue;
    }
    for (const char byte : piece) {
      const auto id = ids_.find(std::string(1, byte));
      if (id == ids_.end())
        throw std::invalid_argument("Tokenizer: byte " +
                                    std::to_string(static_cast<unsigned char>(byte)) +
                                    " does not occur in the text of the vocabulary");
      tokens.push_back(id->second);
    }
  }
  return tokens;
}

}  // namespace headscope::demo
