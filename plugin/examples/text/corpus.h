#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plugin/examples/text/tokenizer.h"

namespace headscope::demo {

/// Reads a file as bytes; throws std::invalid_argument naming path and cause.
std::string read_text(const std::string& path);

/// A tokenised text: the last 5 % (at least one row) is validation, the rest training.
struct Corpus {
  Tokenizer tokenizer;
  std::vector<int64_t> train;
  std::vector<int64_t> validation;
};

/// name: for messages. Throws std::invalid_argument when the text is shorter than one row of
/// context + 1 tokens for training and one for validation.
Corpus make_corpus(const std::string& text, const std::string& name, int64_t context,
                   int64_t vocab_size = 512);

/// Rows of context + 1 tokens: the first `context` are the input, the last `context` the labels.
///
/// Draws from a generator of its own, so that batches are the same whatever else draws in the
/// process.
class BatchSource {
 public:
  /// tokens must outlive the source. repeat_share: share of rows that are made to repeat (see
  /// tile_row).
  BatchSource(const std::vector<int64_t>& tokens, int64_t batch, int64_t context,
              double repeat_share, uint64_t seed);
  /// The next rows, [batch, context + 1] i64.
  at::Tensor next();

  /// Where the source stands, as text; restore() goes on from there. Throws std::runtime_error on
  /// other text.
  std::string save() const;
  void restore(const std::string& saved);

 private:
  const std::vector<int64_t>& tokens_;
  int64_t batch_;
  int64_t row_length_;
  double repeat_share_;
  std::mt19937_64 random_;
};

/// Tiles the row's first `period` tokens over the whole row, as quotations and boilerplate repeat.
void tile_row(int64_t* row, int64_t length, int64_t period);

/// Consecutive, non-overlapping rows of `length` tokens from the start of `tokens`, at most `most`:
/// [M, length] i64.
at::Tensor consecutive_rows(const std::vector<int64_t>& tokens, int64_t length, int64_t most);

}  // namespace headscope::demo
