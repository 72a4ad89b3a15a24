#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <unordered_set>

#include "headscope/random_state.h"
#include "headscope/screen_batches.h"

namespace headscope {

[[noreturn]] inline void refuse_batch(const std::string& batch, const std::string& what) {
  throw std::invalid_argument("headscope " + batch + ": " + what);
}

/// Throws unless the options give rows of `distinct` different tokens.
inline void check_rows(const std::string& batch, const RowOptions& rows, int64_t distinct) {
  if (rows.examples < 1)
    refuse_batch(batch, "examples must be at least 1, got " + std::to_string(rows.examples));
  if (rows.context < 16)
    refuse_batch(batch, "context must be at least 16 to tell six patterns apart, got " +
                            std::to_string(rows.context));
  if (rows.token_low < 0 || rows.token_high - rows.token_low < distinct) {
    refuse_batch(batch, "tokens need a range of at least " + std::to_string(distinct) +
                            " values from 0 up, got [" + std::to_string(rows.token_low) + ", " +
                            std::to_string(rows.token_high) +
                            "); raise token_high to the vocabulary's size or lower context");
  }
}

/// Tokens of one row that have not occurred in it.
class FreshTokens {
 public:
  FreshTokens(const RowOptions& rows, RandomState& random) : rows_(rows), random_(random) {}

  int64_t next() {
    int64_t token;
    do {
      token = random_.integer(rows_.token_low, rows_.token_high);
    } while (!used_.insert(token).second);
    return token;
  }

 private:
  const RowOptions& rows_;
  RandomState& random_;
  std::unordered_set<int64_t> used_;
};

}  // namespace headscope
