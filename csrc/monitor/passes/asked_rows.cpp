#include "csrc/monitor/passes/asked_rows.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "csrc/probe/group_table.h"
#include "headscope/random_state.h"

namespace headscope {
namespace {

constexpr int64_t kMostQueries = 16;
// From here on a query has ordinary keys to compare four targets with.
constexpr int64_t kLeastScreenQuery = 12;
// The same batch again draws from seeds this far apart.
constexpr uint32_t kBatchSeedsApart = 1000;

[[noreturn]] void refuse_screen(const std::string& what) {
  throw std::invalid_argument("headscope screen: " + what);
}

/// How many rows of which length, and where their tokens may lie.
RowOptions row_options(const ScreenRequest& request, const ProbeOptions& probe, uint32_t number) {
  RowOptions rows;
  rows.examples = request.examples > 0 ? request.examples : probe.examples;
  rows.context = request.context > 0 ? request.context : probe.context;
  rows.seed = request.seed + kBatchSeedsApart * number;
  if (request.examples < 0)
    refuse_screen(c10::str("examples must be 0 (the probe's) or more, got ", request.examples));
  if (rows.context < 16 || rows.context > probe.context)
    refuse_screen(c10::str("context must be 16 .. ", probe.context,
                           " (ProbeOptions::context), or 0 for the probe's, got ",
                           request.context));
  if (request.token_high > probe.vocab_size || request.token_low >= probe.vocab_size)
    refuse_screen(c10::str("tokens of [", request.token_low, ", ", request.token_high,
                           ") are asked for, and the vocabulary is 0..", probe.vocab_size - 1,
                           " (ProbeOptions::vocab_size); leave token_low and token_high at -1"));
  rows.token_low = request.token_low >= 0 ? request.token_low : probe.token_low;
  rows.token_high = request.token_high >= 0 ? request.token_high : probe.token_high;
  return rows;
}

/// The same for rows of different tokens, which take the whole vocabulary where the probe's range
/// is too small for them.
RowOptions distinct_row_options(ScreenBatch batch, const ScreenRequest& request,
                                const ProbeOptions& probe, uint32_t number) {
  RowOptions rows = row_options(request, probe, number);
  const bool told = request.token_low >= 0 || request.token_high >= 0;
  if (rows.token_high - rows.token_low >= rows.context) return rows;
  if (told || probe.vocab_size < rows.context)
    refuse_screen(c10::str("a row of ", to_string(batch), " has ", rows.context,
                           " different tokens, and there are ",
                           told ? rows.token_high - rows.token_low : probe.vocab_size,
                           " to draw from; lower ScreenRequest::context"));
  rows.token_low = 0;
  rows.token_high = probe.vocab_size;
  return rows;
}

/// Where stretch `part` of `parts` equal ones of [begin, end) is drawn from; never empty.
int64_t drawn_from_stretch(RandomState& random, int64_t begin, int64_t end, int64_t part,
                           int64_t parts) {
  const int64_t low = std::min(begin + (end - begin) * part / parts, end - 1);
  const int64_t high = std::max(low + 1, begin + (end - begin) * (part + 1) / parts);
  return random.integer(low, high);
}

/// [rows, queries]: one query in each stretch from max(T / 4, 12) to T - 2, as the probe's.
at::Tensor sampled_queries(const RowOptions& rows, int64_t queries) {
  RandomState random(rows.seed + 5);
  const int64_t begin = std::min(std::max(rows.context / 4, kLeastScreenQuery), rows.context - 2);
  std::vector<int64_t> drawn;
  for (int64_t n = 0; n < rows.examples; ++n)
    for (int64_t part = 0; part < queries; ++part)
      drawn.push_back(drawn_from_stretch(random, begin, rows.context - 1, part, queries));
  return int64_tensor(drawn, {rows.examples, queries});
}

/// Planted pairs whose second A stands at one of `queries` places: T - 1, and one drawn in each of
/// equal stretches before it. What follows in the row no query sees.
void planted_rows(const RowOptions& options, const ProbeOptions& probe, int64_t queries,
                  AskedRows& rows) {
  const InductionBatch batch = induction_batch({.examples = options.examples,
                                                .context = options.context,
                                                .token_low = options.token_low,
                                                .token_high = options.token_high,
                                                .seed = options.seed,
                                                .window = probe.window});
  const int64_t context = options.context;
  const int64_t window = probe.window > 0 ? std::min(probe.window, context) : context;
  const int64_t begin = context - window + window / 2 + 2;  // behind every pair
  RandomState random(options.seed + 5);
  rows.tokens = batch.tokens;
  rows.first = batch.pair_position;
  std::vector<int64_t> asked;
  for (int64_t n = 0; n < options.examples; ++n) {
    int64_t query = context - 1;
    if (const int64_t part = n % queries; part > 0)
      query = drawn_from_stretch(random, begin, context - 1, part - 1, queries - 1);
    int64_t* row = rows.tokens.data_ptr<int64_t>() + n * context;
    row[query] = row[context - 1];
    asked.push_back(query);
  }
  rows.queries = int64_tensor(asked, {options.examples, 1});
}

void text_rows(const RowOptions& options, const ScreenRequest& request, AskedRows& rows) {
  const auto have = std::ssize(request.stream) / options.context;
  if (have < 1)
    refuse_screen(c10::str("the stream has ", request.stream.size(),
                           " tokens, fewer than one row of ", options.context,
                           "; give ScreenRequest::stream"));
  RowOptions fitting = options;
  fitting.examples = std::min(options.examples, have);
  rows.tokens = int64_tensor(
      std::span(request.stream).first(static_cast<size_t>(fitting.examples * options.context)),
      {fitting.examples, options.context});
  rows.queries = sampled_queries(fitting, request.query_positions);
}

void natural_rows(const RowOptions& options, const ScreenRequest& request, AskedRows& rows) {
  NaturalInductionOptions natural = request.natural;
  natural.examples = options.examples;
  natural.context = options.context;
  const NaturalInductionBatch batch =
      natural_induction_batch(request.stream, request.documents, natural);
  rows.tokens = batch.tokens;
  rows.first = batch.first;
  rows.queries = int64_tensor(batch.query, {batch.tokens.size(0), 1});
}

void hard_negative_rows(const RowOptions& options, int64_t queries, AskedRows& rows) {
  const int64_t most = (options.context / 2 - 1) / 2;
  const HardNegativeBatch batch =
      hard_negative_batch({.rows = options, .pairs = std::min<int64_t>(8, most)});
  const int64_t asked = std::min(queries, std::ssize(batch.second.front()));
  std::vector<int64_t> positions;
  for (const auto& second : batch.second)
    positions.insert(positions.end(), second.begin(), second.begin() + asked);
  rows.tokens = batch.tokens;
  rows.queries = int64_tensor(positions, {options.examples, asked});
}

void check_screened_ids(const std::string& what, const at::Tensor& tokens, int64_t vocabulary) {
  const int64_t low = tokens.min().item<int64_t>(), high = tokens.max().item<int64_t>();
  if (low < 0 || high >= vocabulary)
    refuse_screen(c10::str(what, " have the id ", low < 0 ? low : high,
                           ", and the vocabulary is 0..", vocabulary - 1,
                           " (ProbeOptions::vocab_size)"));
}

void check_asked_patterns(const AskedRows& rows) {
  try {
    validate_patterns(rows.patterns);
  } catch (const std::invalid_argument& error) {
    refuse_screen(error.what());
  }
}

bool has_pattern(const std::vector<Pattern>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const Pattern& known) { return known.name == name; });
}

/// The reference's rows know the six standard patterns alone.
ScreenRows reference_rows(const AskedRows& rows) {
  const auto standard = standard_patterns();
  const bool fits = std::equal(
      rows.patterns.begin(), rows.patterns.end(), standard.begin(), standard.end(),
      [](const Pattern& own, const Pattern& reference) { return own.name == reference.name; });
  if (rows.first.empty())
    refuse_screen("kReference50 is defined on planted and natural induction rows, not on " +
                  rows.batch + "; take ScreenControls::kOrdinary");
  if (!fits)
    refuse_screen(
        "kReference50 knows the standard patterns alone; take ScreenControls::kOrdinary, or give "
        "others as own_rows");
  const std::span query(rows.queries.const_data_ptr<int64_t>(),
                        static_cast<size_t>(rows.queries.numel()));
  if (rows.batch == to_string(ScreenBatch::kNaturalInduction))
    return natural_screen_rows(rows.first, query, rows.context(), ScreenControls::kReference50);
  if (std::any_of(query.begin(), query.end(), [&](int64_t q) { return q != rows.context() - 1; }))
    refuse_screen("kReference50 asks planted rows from the last token; set query_positions to 1");
  return planted_screen_rows(
      rows.first, rows.context(), ScreenControls::kReference50,
      {rows.tokens.const_data_ptr<int64_t>(), static_cast<size_t>(rows.tokens.numel())});
}

}  // namespace

AskedRows asked_rows(ScreenBatch batch, const ScreenRequest& request, const ProbeOptions& probe,
                     uint32_t number) {
  const int64_t queries = request.query_positions;
  if (queries < 1 || queries > kMostQueries)
    refuse_screen(c10::str("query_positions must be 1 .. ", kMostQueries, ", got ", queries));
  AskedRows rows;
  rows.batch = to_string(batch);
  rows.patterns = request.patterns.empty() ? probe.patterns : request.patterns;
  check_asked_patterns(rows);
  switch (batch) {
    case ScreenBatch::kPlanted:
      planted_rows(row_options(request, probe, number), probe, queries, rows);
      break;
    case ScreenBatch::kDuplicateToken: {
      const auto drawn =
          duplicate_token_batch({distinct_row_options(batch, request, probe, number)});
      rows.tokens = drawn.tokens;
      rows.queries = int64_tensor(drawn.query, {drawn.tokens.size(0), 1});
      break;
    }
    case ScreenBatch::kIndirectObject: {
      IndirectObjectOptions prompts = request.prompts;
      prompts.seed += kBatchSeedsApart * number;
      const auto drawn = indirect_object_batch(prompts);
      rows.tokens = drawn.tokens;
      rows.queries = int64_tensor(drawn.query, {drawn.tokens.size(0), 1});
      for (Pattern& pattern : indirect_object_patterns(prompts.names))
        if (request.patterns.empty() && !has_pattern(rows.patterns, pattern.name))
          rows.patterns.push_back(std::move(pattern));
      break;
    }
    case ScreenBatch::kNaturalInduction:
      natural_rows(row_options(request, probe, number), request, rows);
      break;
    case ScreenBatch::kText:
      text_rows(row_options(request, probe, number), request, rows);
      break;
    case ScreenBatch::kHardNegative:
      hard_negative_rows(distinct_row_options(batch, request, probe, number), queries, rows);
      break;
    case ScreenBatch::kLocalRepeat: {
      const RowOptions options = distinct_row_options(batch, request, probe, number);
      rows.tokens = local_repeat_batch({.rows = options});
      rows.queries = sampled_queries(options, queries);
      break;
    }
    case ScreenBatch::kRandom: {
      const RowOptions options = row_options(request, probe, number);
      rows.tokens =
          random_null_batch(options.examples, options.context, probe.vocab_size, options.seed);
      rows.queries = sampled_queries(options, queries);
      break;
    }
  }
  check_screened_ids("tokens of the batch " + rows.batch, rows.tokens, probe.vocab_size);
  return rows;
}

AskedRows own_rows(const ScreenPattern& own, const ProbeOptions& probe) {
  AskedRows rows;
  rows.batch = "own";
  rows.patterns = {own.pattern};
  check_asked_patterns(rows);
  const std::string name = "pattern '" + own.pattern.name + "'";
  const at::Tensor& tokens = own.tokens;
  if (!tokens.defined() || tokens.dim() != 2 || tokens.scalar_type() != at::kLong ||
      tokens.numel() == 0)
    refuse_screen(c10::str(name, " of own_rows needs tokens [N, T] i64 with at least one row, got ",
                           tokens.defined() ? c10::str(tokens.scalar_type(), " ", tokens.sizes())
                                            : std::string("none"),
                           "; give it rows, or put it into patterns to ask the batch about it"));
  if (tokens.size(1) < 2 || tokens.size(1) > probe.context)
    refuse_screen(c10::str(name, " has rows of ", tokens.size(1), " tokens; needed are 2 .. ",
                           probe.context, " (ProbeOptions::context)"));
  check_screened_ids("the rows of " + name, tokens, probe.vocab_size);
  const int64_t count = tokens.size(0);
  rows.tokens = tokens.to(at::kCPU).contiguous();
  rows.queries = at::full({count, 1}, tokens.size(1) - 1, at::kLong);
  if (own.query.empty()) return rows;
  if (std::ssize(own.query) != count)
    refuse_screen(c10::str(name, " has ", own.query.size(), " queries for ", count, " rows"));
  rows.queries = int64_tensor(own.query, {count, 1});
  return rows;
}

ScreenRows screen_rows(const AskedRows& rows, ScreenControls controls) {
  if (controls == ScreenControls::kReference50) return reference_rows(rows);
  std::vector<Pattern> all = rows.patterns;
  for (Pattern& standard : standard_patterns())
    if (!has_pattern(rows.patterns, standard.name)) all.push_back(std::move(standard));
  const at::Tensor repeated =
      rows.tokens.repeat_interleave(rows.queries.size(1), 0).contiguous();  // a row for each query
  const at::Tensor query = rows.queries.contiguous();
  ScreenRows asked = pattern_screen_rows(
      {repeated.const_data_ptr<int64_t>(), static_cast<size_t>(repeated.numel())}, rows.context(),
      {query.const_data_ptr<int64_t>(), static_cast<size_t>(query.numel())}, all);
  asked.patterns.resize(rows.patterns.size());
  return asked;
}

ScreenRows seen_rows(ScreenRows rows, const at::Tensor& seen_in) {
  const at::Tensor seen = seen_in.contiguous();
  const bool* data = seen.const_data_ptr<bool>();
  for (size_t r = 0; r < rows.query.size(); ++r) {
    const auto hidden = [&](int64_t t) {
      return !data[static_cast<int64_t>(r) * rows.context + t];
    };
    std::erase_if(rows.controls[r], hidden);
    for (ScreenTargets& targets : rows.patterns)
      if (std::any_of(targets.positions[r].begin(), targets.positions[r].end(), hidden))
        targets.positions[r].clear();
  }
  return rows;
}

int64_t span_of(const ScreenRows& rows, int64_t window) {
  double inverse_keys = 0;
  for (const int64_t query : rows.query)
    inverse_keys += 1 / static_cast<double>(window > 0 ? std::min(query, window - 1) : query);
  return 1 + std::lround(static_cast<double>(rows.query.size()) / inverse_keys);
}

}  // namespace headscope
