#include "plugin/examples/text/corpus.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <locale>
#include <sstream>
#include <stdexcept>

namespace headscope::demo {
namespace {

constexpr double kValidationShare = 0.05;
constexpr int64_t kShortestPeriod = 8;

}  // namespace

std::string read_text(const std::string& path) {
  const auto refuse = [&path](const std::string& cause) {
    throw std::invalid_argument("--corpus '" + path + "' cannot be read (" + cause +
                                "): give a text file");
  };
  if (std::filesystem::is_directory(path)) refuse("it is a folder");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Corpus make_corpus(const std::string& text, const std::string& name, int64_t context,
                   int64_t vocab_size) {
  Corpus corpus{Tokenizer(text, vocab_size), {}, {}};
  std::vector<int64_t> tokens = corpus.tokenizer.encode(text);
  const auto length = static_cast<int64_t>(tokens.size());
  const int64_t row = context + 1;
  if (length < 2 * row)
    throw std::invalid_argument("--corpus '" + name + "' has " + std::to_string(length) +
                                " tokens; --context " + std::to_string(context) +
                                " needs at least " + std::to_string(2 * row) +
                                " (one context each for training and validation): give a longer "
                                "text or a smaller --context");
  const auto share = static_cast<int64_t>(static_cast<double>(length) * kValidationShare);
  const int64_t split = length - std::max(share, row);
  corpus.train.assign(tokens.begin(), tokens.begin() + split);
  corpus.validation.assign(tokens.begin() + split, tokens.end());
  return corpus;
}

BatchSource::BatchSource(const std::vector<int64_t>& tokens, int64_t batch, int64_t context,
                         double repeat_share, uint64_t seed)
    : tokens_(tokens),
      batch_(batch),
      row_length_(context + 1),
      repeat_share_(repeat_share),
      random_(seed) {}

at::Tensor BatchSource::next() {
  at::Tensor rows = at::empty({batch_, row_length_}, at::kLong);
  const uint64_t starts = tokens_.size() - static_cast<uint64_t>(row_length_) + 1;
  const int64_t longest_period = std::max(row_length_ / 2, int64_t{1});
  const int64_t shortest_period = std::min(kShortestPeriod, longest_period);
  for (int64_t b = 0; b < batch_; ++b) {
    int64_t* row = rows.data_ptr<int64_t>() + b * row_length_;
    const auto start = static_cast<int64_t>(random_() % starts);
    std::copy_n(tokens_.begin() + start, row_length_, row);
    // 53 bits: the same double on every platform, which std::uniform_real_distribution does not
    // promise.
    const double draw = static_cast<double>(random_() >> 11) * 0x1.0p-53;
    if (draw < repeat_share_) {
      const auto periods = static_cast<uint64_t>(longest_period - shortest_period + 1);
      tile_row(row, row_length_, shortest_period + static_cast<int64_t>(random_() % periods));
    }
  }
  return rows;
}

std::string BatchSource::save() const {
  std::ostringstream text;
  text.imbue(std::locale::classic());
  text << random_;
  return text.str();
}

void BatchSource::restore(const std::string& saved) {
  std::istringstream text(saved);
  text.imbue(std::locale::classic());
  std::mt19937_64 random;
  if (!(text >> random)) throw std::runtime_error("BatchSource: this is no state of a generator");
  random_ = random;
}

void tile_row(int64_t* row, int64_t length, int64_t period) {
  for (int64_t i = period; i < length; ++i) row[i] = row[i - period];
}

at::Tensor consecutive_rows(const std::vector<int64_t>& tokens, int64_t length, int64_t most) {
  const int64_t rows = std::min(most, static_cast<int64_t>(tokens.size()) / length);
  at::Tensor result = at::empty({rows, length}, at::kLong);
  std::copy_n(tokens.begin(), rows * length, result.data_ptr<int64_t>());
  return result;
}

}  // namespace headscope::demo
