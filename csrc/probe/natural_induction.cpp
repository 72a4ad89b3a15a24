#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "csrc/probe/row_draws.h"
#include "headscope/screen_batches.h"

namespace headscope {
namespace {

const std::string kNaturalInduction = "natural_induction_batch";

void check_natural(const NaturalInductionOptions& options) {
  if (options.examples < 1)
    refuse_batch(kNaturalInduction,
                 "examples must be at least 1, got " + std::to_string(options.examples));
  if (options.context < 16)
    refuse_batch(kNaturalInduction,
                 "context must be at least 16, got " + std::to_string(options.context));
  if (options.filler < 0)
    refuse_batch(kNaturalInduction,
                 "filler must be 0 or more, got " + std::to_string(options.filler));
  const int64_t positions = options.context - 2 - options.filler;
  if (options.first_position < 0 || options.first_position >= positions)
    refuse_batch(kNaturalInduction, "first_position must lie in [0, context - 2 - filler) = [0, " +
                                        std::to_string(positions) + "), got " +
                                        std::to_string(options.first_position));
}

/// Begin and length of each document.
std::vector<std::pair<int64_t, int64_t>> extents_of(int64_t stream,
                                                    std::span<const int64_t> documents,
                                                    int64_t context) {
  std::vector<std::pair<int64_t, int64_t>> extents;
  if (documents.empty()) {
    for (int64_t begin = 0; begin + context <= stream; begin += context)
      extents.emplace_back(begin, context);
    if (extents.empty())
      refuse_batch(kNaturalInduction, "the stream has " + std::to_string(stream) +
                                          " tokens, fewer than one row of " +
                                          std::to_string(context));
    return extents;
  }
  for (size_t d = 0; d < documents.size(); ++d) {
    const int64_t begin = documents[d], least = d == 0 ? 0 : documents[d - 1];
    if (begin < least || begin > stream)
      refuse_batch(kNaturalInduction, "documents must ascend within the stream's " +
                                          std::to_string(stream) + " tokens; entry " +
                                          std::to_string(d) + " is " + std::to_string(begin));
    if (d > 0) extents.emplace_back(least, begin - least);
  }
  return extents;
}

struct RepeatedToken {
  int64_t first = -1, query = -1;
};

/// The latest query for the token at `first`, or -1.
int64_t query_for(const int64_t* row, int64_t first, const NaturalInductionOptions& options) {
  const int64_t context = options.context, token = row[first], successor = row[first + 1];
  const auto is_token = [&](int64_t t) { return row[t] == token; };
  int64_t last = context - 1;
  if (options.single_earlier) {
    for (int64_t t = 0; t < first; ++t)
      if (is_token(t)) return -1;
    last = first + 1;
    while (last < context && !is_token(last)) ++last;
    if (last == context) return -1;
  }
  for (int64_t query = last; query >= first + 1 + options.filler; --query) {
    if (!is_token(query)) continue;
    const bool next_is_target = query + 1 < context && row[query + 1] == successor;
    if (next_is_target || !options.next_is_target) return query;
  }
  return -1;
}

RepeatedToken repeated_token(const int64_t* row, const NaturalInductionOptions& options) {
  for (int64_t i = options.first_position; i < options.context - 2 - options.filler; ++i) {
    if (std::min(row[i], row[i + 1]) < options.lowest_token || row[i] == row[i + 1]) continue;
    const int64_t query = query_for(row, i, options);
    if (query >= 0) return {i, query};
  }
  return {};
}

}  // namespace

NaturalInductionBatch natural_induction_batch(std::span<const int64_t> stream,
                                              std::span<const int64_t> documents,
                                              const NaturalInductionOptions& options) {
  check_natural(options);
  const auto extents = extents_of(static_cast<int64_t>(stream.size()), documents, options.context);
  const auto count = static_cast<int64_t>(extents.size());
  std::vector<int64_t> order(extents.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (options.shuffle_seed) order = RandomState(*options.shuffle_seed).permutation(count);
  NaturalInductionBatch batch;
  std::vector<int64_t> tokens;
  for (const int64_t d : order) {
    const auto [begin, length] = extents[static_cast<size_t>(d)];
    if (length < options.context) {
      ++batch.documents_short;
      continue;
    }
    const int64_t* row = stream.data() + begin;
    const RepeatedToken found = repeated_token(row, options);
    if (found.query < 0) {
      ++batch.documents_without_pair;
      continue;
    }
    tokens.insert(tokens.end(), row, row + options.context);
    batch.first.push_back(found.first);
    batch.query.push_back(found.query);
    batch.target_token.push_back(row[found.first + 1]);
    if (static_cast<int64_t>(batch.query.size()) == options.examples) break;
  }
  const auto rows = static_cast<int64_t>(batch.query.size());
  if (rows == 0)
    refuse_batch(kNaturalInduction,
                 "none of " + std::to_string(count) +
                     " documents gave a row: " + std::to_string(batch.documents_short) +
                     " are shorter than " + std::to_string(options.context) + " tokens, " +
                     std::to_string(batch.documents_without_pair) +
                     " have no such pair; lower context or filler, or give more text");
  batch.tokens = at::tensor(tokens, at::kLong).view({rows, options.context});
  return batch;
}

}  // namespace headscope
