#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "headscope/ablation_runner.h"
#include "headscope/monitor.h"
#include "headscope/null_calibration.h"
#include "headscope/patterns.h"
#include "headscope/screen.h"
#include "headscope/screen_batches.h"
#include "headscope/screen_rows.h"

namespace headscope {

/// Rows that a screen runs through the model (docs/math.md section 9).
enum class ScreenBatch : uint8_t {
  kPlanted,           ///< the probe's planted pairs, A B .. A
  kDuplicateToken,    ///< duplicate_token_batch
  kIndirectObject,    ///< indirect_object_batch of ScreenRequest::prompts
  kNaturalInduction,  ///< natural_induction_batch of ScreenRequest::stream
  kText,              ///< ScreenRequest::stream as it stands, asked at sampled queries
  kHardNegative,      ///< hard_negative_batch, asked at the second occurrences
  kLocalRepeat,       ///< local_repeat_batch, asked at sampled queries
  kRandom,            ///< random_null_batch, likewise
};

/// "planted", "duplicate_token", "indirect_object", "natural_induction", "text", "hard_negative",
/// "local_repeat", "random".
HEADSCOPE_API const char* to_string(ScreenBatch batch);
/// The reverse; throws std::invalid_argument naming the value and the choices.
HEADSCOPE_API ScreenBatch screen_batch_from_string(const std::string& name);

/// A pattern with rows of its own, and what following it is good for.
struct ScreenPattern {
  Pattern pattern;                    ///< its name, targets and threshold
  at::Tensor tokens = {};             ///< [N, T] i64, required; T up to the probe's context
  std::vector<int64_t> query = {};    ///< [N] where each row is asked; empty: the last token
  std::vector<int64_t> answers = {};  ///< [N] token ids that should follow the query
  AblationLoss loss = {};             ///< in place of answers
};

/// A screen: which rows, asked about which patterns, against which nulls.
struct ScreenRequest {
  ScreenBatch batch = ScreenBatch::kPlanted;
  /// Further batches that the classes are compared over (class_stability). The same batch again is
  /// drawn with another seed.
  std::vector<ScreenBatch> compared = {};

  // --- the rows
  int64_t examples = 0;  ///< N; 0: the probe's
  int64_t context = 0;   ///< T, 16 .. the probe's; 0: the probe's
  /// Query positions, 1..16: of planted pairs each row has one of so many, every other batch that
  /// can be asked anywhere has so many in each row.
  int64_t query_positions = 4;
  int64_t token_low = -1;  ///< tokens are drawn from [token_low, token_high); -1: as the probe's
  int64_t token_high = -1;
  uint32_t seed = 42;
  IndirectObjectOptions prompts = {};    ///< of kIndirectObject; its examples and seed count
  NaturalInductionOptions natural = {};  ///< of kNaturalInduction; examples, context: as above
  std::vector<int64_t> stream = {};      ///< token ids of kNaturalInduction and kText
  std::vector<int64_t> documents = {};   ///< where they begin in it (natural_induction_batch)

  // --- what is asked
  std::vector<Pattern> patterns = {};        ///< empty: the probe's
  std::vector<ScreenPattern> own_rows = {};  ///< further patterns, in the same table
  ScreenControls controls = ScreenControls::kOrdinary;
  ScreenRules rules = {};
  std::optional<int64_t> top_k = {};  ///< K; default_top_k if not given

  // --- nulls
  int64_t null_draws = 100;
  uint32_t null_seed = kReferenceNullSeed;
  /// Which null the recall threshold is of. Both are drawn; where targets are the same in every
  /// row there is only the uniform one.
  NullTargets recall_null = NullTargets::kPermuted;

  /// Ablates the members of every circuit that has a behaviour: BehaviourMetric of a pattern on the
  /// batch, answers or loss of one with its own rows.
  bool ablate = false;
  VerdictRule verdict = {};
};

/// One pattern of a screen: a line of its table.
struct ScreenedPattern {
  std::string pattern;
  std::string batch;    ///< to_string(ScreenBatch), or "own"
  int64_t rows = 0;     ///< queries that count for it
  int64_t context = 0;  ///< T that its threshold scales with: 1 + harmonic mean of a query's keys
  double threshold = kNaN;  ///< selectivity of its circuit
  /// max(2, p99) of the chosen null; NaN: too few rows count for one.
  double recall_threshold = kNaN;
  std::vector<HeadId> members;       ///< of the circuit
  std::vector<HeadId> above_recall;  ///< heads at or above the recall threshold
  std::optional<HeadId> best;        ///< the most selective head, and its figures
  PatternReading best_reading;
  std::optional<SelectivityNull> permuted, uniform;
  std::optional<AblationReport> ablation;  ///< of the members (ScreenRequest::ablate)
};

/// What a screen found.
struct ScreenResult {
  std::string batch;
  int64_t context = 0;                    ///< T that the classes' threshold scales with
  std::vector<HeadReading> heads;         ///< patterns in the order of `patterns`; ascending by id
  std::vector<ScreenedPattern> patterns;  ///< those on the batch, then those with their own rows
  /// Of the patterns on the batch. Heads are ranked by the integral of the last probe; without one
  /// there is no precision at k.
  Screen screen;
  RatioNull ratio;  ///< participation ratios against random tokens asked at the same queries
  /// Of the classes over equal parts of the rows by query position; none: one query position.
  std::optional<ClassStability> over_positions;
  std::optional<ClassStability> over_batches;  ///< none: nothing is compared
};

/// One line for each pattern, then the figures of the whole model.
HEADSCOPE_API std::string to_text(const ScreenResult& result);

/// The reference protocol as one switch: three settings that belong together.
struct ReferenceProtocol {
  Options options;       ///< axis of the integral, rules of circuits
  ProbeOptions probe;    ///< planted pairs, N = 500, asked from the last token, 50 fixed controls
  ScreenRequest screen;  ///< N = 2000, 500 uniform null draws, previous-token by class
};
/// Throws std::invalid_argument when the vocabulary has fewer than the reference's 10000 tokens, or
/// context < 16. The reference's T is 256.
HEADSCOPE_API ReferenceProtocol reference_protocol(int64_t vocab_size, int64_t context = 256);

}  // namespace headscope
