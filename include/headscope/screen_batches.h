#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "headscope/export.h"
#include "headscope/patterns.h"

namespace headscope {

/// Batches beside the planted pair (probe_batch.h): other behaviours, and rows on which there is
/// nothing to find (docs/math.md section 9). All are functions of their options alone, drawn with
/// RandomState, and throw std::invalid_argument that names the value and the fix.

/// How many rows of which tokens.
struct RowOptions {
  int64_t examples = 2000;  ///< N
  int64_t context = 256;    ///< T, at least 16
  /// Tokens are drawn from [token_low, token_high). Where a row's tokens are to be distinct, the
  /// range must hold at least T of them.
  int64_t token_low = 100;
  int64_t token_high = 10000;
  uint32_t seed = 42;
};

/// Rows in which one token occurs twice and every other once.
struct DuplicateTokenOptions {
  RowOptions rows = {};
  int64_t query_low = -1;  ///< the query is drawn from [query_low, T); -1: T / 2
  int64_t lag_low = 8;     ///< the lag is drawn from [lag_low, min(lag_high, query))
  int64_t lag_high = -1;   ///< -1: T
};
struct DuplicateTokenBatch {
  at::Tensor tokens;             ///< [N, T] i64
  std::vector<int64_t> query;    ///< [N] position of the second occurrence
  std::vector<int64_t> earlier;  ///< [N] position of the first, 1 .. query - lag_low
};
/// Query and lag differ from row to row, so a head that looks at a fixed position or distance does
/// not pass for one that looks for the token. What follows the first occurrence is the target of
/// induction: the same rows serve it at several queries.
///
/// A row's draws: T distinct tokens, the query, the lag.
HEADSCOPE_API DuplicateTokenBatch duplicate_token_batch(const DuplicateTokenOptions& options);

/// Hard negatives, A B .. A C: tokens come back, and what followed them does not.
struct HardNegativeOptions {
  RowOptions rows = {};
  int64_t pairs = 8;  ///< of a row, 1 .. (T / 2 - 1) / 2
};
struct HardNegativeBatch {
  at::Tensor tokens;                         ///< [N, T] i64
  std::vector<std::vector<int64_t>> first;   ///< [N][pairs] position of A before B, in [1, T / 2)
  std::vector<std::vector<int64_t>> second;  ///< [N][pairs] of A before C, in [T / 2, T - 1)
};
/// No bigram occurs twice in a row and C occurs nowhere else, so a model that has seen only such
/// rows has nothing to gain from copying what followed A: an induction circuit in it is false.
///
/// A row's draws: T distinct tokens, the first places (choice without replacement among the pairs
/// of neighbours from position 1), the second places (likewise from T / 2). The token at each first
/// place is put at the second place drawn with it.
HEADSCOPE_API HardNegativeBatch hard_negative_batch(const HardNegativeOptions& options);

/// Rows whose repeats are all close by.
struct LocalRepeatOptions {
  RowOptions rows = {};
  int64_t longest_lag = 8;      ///< no two equal tokens are further apart; below T
  int64_t repeat_percent = 25;  ///< chance that a position asks for a repeat, 0 .. 100
};
/// [N, T] i64. Equal tokens are at most longest_lag apart and no bigram occurs twice: a head that
/// looks for tokens nearby has work here, an induction head has none.
///
/// A position's draws: whether it repeats; if so the lag, in [1, min(longest_lag, t)]. A token that
/// has not occurred in the row is drawn when it does not repeat, or may not by the two rules above.
HEADSCOPE_API at::Tensor local_repeat_batch(const LocalRepeatOptions& options);

/// The seed of the reference's null calibrations.
inline constexpr uint32_t kReferenceNullSeed = 2026;

/// [examples, context] i64, uniform over [0, vocab_size): the rows of the reference's null of the
/// participation ratio, bit for bit.
HEADSCOPE_API at::Tensor random_null_batch(int64_t examples, int64_t context, int64_t vocab_size,
                                           uint32_t seed = kReferenceNullSeed);

/// What stands in a template of indirect objects where a name, a place or an object goes.
enum IndirectObjectSlot : int64_t {
  kFirstName = -1,   ///< the indirect object in ABBA, the subject in BABA
  kSecondName = -2,  ///< the other one
  kSubject = -3,     ///< the subject again
  kPlace = -4,
  kObject = -5,
};

/// Prompts of indirect-object identification (Wang et al. 2022; reference protocol section 7), from
/// token ids of the user's own tokenizer.
struct IndirectObjectOptions {
  std::vector<int64_t> names =
      {};  ///< ids of one-token names as they stand in the text, at least 2
  std::vector<int64_t> places = {};   ///< at least 1 where the template has the slot
  std::vector<int64_t> objects = {};  ///< likewise
  /// Token ids and slots of a prompt, each name's slot once and in this order. For "When {first}
  /// and {second} went to the {place}, {subject} gave a {object} to" these are
  /// {When, kFirstName, and, kSecondName, went, to, the, kPlace, ",", kSubject, gave, a, kObject,
  /// to}.
  std::vector<int64_t> prompt = {};
  int64_t examples = 500;
  uint32_t seed = 42;
};
struct IndirectObjectBatch {
  at::Tensor tokens;                     ///< [N, T] i64
  std::vector<int64_t> indirect_object;  ///< [N] token that should follow
  std::vector<int64_t> subject;          ///< [N] token that should not
  std::vector<int64_t> io_position;      ///< [N]
  std::vector<int64_t> s1_position;      ///< [N] the subject's first occurrence
  std::vector<int64_t> s2_position;      ///< [N] its second
  std::vector<int64_t> query;            ///< [N] T - 1
};
/// Prompt i is ABBA (indirect object first) for even i and BABA for odd i. A prompt's draws: two
/// names without replacement (indirect object, subject), the place, the object. With the
/// reference's 42 names, 6 places and 6 objects the choices are the reference's.
HEADSCOPE_API IndirectObjectBatch indirect_object_batch(const IndirectObjectOptions& options);

/// Patterns for these prompts: `name-mover`, from the query to the names that occur once, and
/// `s-inhibition`, from the query to the last occurrence of the names that occur twice. `names` are
/// those of the options. Threshold 30 at T = 256, null by permuted targets, no metric.
HEADSCOPE_API std::vector<Pattern> indirect_object_patterns(std::span<const int64_t> names);

/// Rows of real text with a token T, its successor S, and T again (reference protocol section 8).
struct NaturalInductionOptions {
  int64_t examples = 2000;      ///< at most; N is what was found
  int64_t context = 256;        ///< the first tokens of a document that make a row, at least 16
  int64_t lowest_token = 100;   ///< T and S are at least this
  int64_t filler = 20;          ///< T comes again at least this many tokens after S
  int64_t first_position = 20;  ///< T stands here or later: what lies before is left to sinks
  /// The token after the second T is S, and lies in the row. The reference does not ask.
  bool next_is_target = true;
  /// T stands nowhere else before its second occurrence, so that a row has one target. The
  /// reference does not ask.
  bool single_earlier = true;
  /// Takes the documents in the order of a permutation drawn with this seed; without it in the
  /// order given, as the reference does.
  std::optional<uint32_t> shuffle_seed = {};

  /// The reference's rows exactly: no check of the next token, other occurrences allowed, from
  /// position 0.
  static NaturalInductionOptions reference() {
    return {.first_position = 0, .next_is_target = false, .single_earlier = false};
  }
};
struct NaturalInductionBatch {
  at::Tensor tokens;                   ///< [N, T] i64
  std::vector<int64_t> first;          ///< [N] position of the first T; S follows it
  std::vector<int64_t> query;          ///< [N] position of the second
  std::vector<int64_t> target_token;   ///< [N] S
  int64_t documents_short = 0;         ///< skipped: fewer than `context` tokens
  int64_t documents_without_pair = 0;  ///< skipped: no such pair
};
/// Takes one row of each document: the earliest first T for which there is a second one, and of
/// those the latest.
///
/// stream     token ids of all documents, one after the other
/// documents  [D + 1] where each begins in `stream`, and where the last ends, ascending; empty: the
///            stream is cut into rows of `context` tokens
///
/// Throws std::invalid_argument when no row was found, or what was given does not fit together.
/// Cost: at most context^2 comparisons a document.
HEADSCOPE_API NaturalInductionBatch natural_induction_batch(std::span<const int64_t> stream,
                                                            std::span<const int64_t> documents,
                                                            const NaturalInductionOptions& options);

}  // namespace headscope
