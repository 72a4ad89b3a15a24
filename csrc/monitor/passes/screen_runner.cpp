#include "csrc/monitor/passes/screen_runner.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <stdexcept>
#include <utility>

#include "csrc/monitor/analysis/spectra.h"
#include "csrc/monitor/passes/host_evaluation.h"

namespace headscope {
namespace {

using Labels = std::vector<std::optional<size_t>>;

std::span<const float> floats(const at::Tensor& weights) {
  return {weights.const_data_ptr<float>(), static_cast<size_t>(weights.numel())};
}

/// Reads every head on every pattern, from the rows `chosen` (indices among the queries).
std::vector<HeadReading> readings_of(const ScreenedRows& screened,
                                     const std::vector<int64_t>& chosen) {
  std::vector<HeadReading> heads = screened.heads;
  const at::Tensor index = at::tensor(chosen, at::kLong);
  for (const auto& group : screened.groups) {
    ScreenRows part;
    part.context = group.rows.context;
    for (const auto& targets : group.rows.patterns) part.patterns.push_back({targets.pattern, {}});
    for (const int64_t i : chosen) {
      const auto r = static_cast<size_t>(i);
      part.query.push_back(group.rows.query[r]);
      part.controls.push_back(group.rows.controls[r]);
      for (size_t p = 0; p < part.patterns.size(); ++p)
        part.patterns[p].positions.push_back(group.rows.patterns[p].positions[r]);
    }
    std::vector<HeadId> ids;
    for (const size_t place : group.heads) ids.push_back(heads[place].id);
    at::Tensor own;
    const auto read = screen_readings(part, ids, [&](size_t h) {
      own = screened.weights[group.heads[h]].index_select(0, index);
      return floats(own);
    });
    for (size_t h = 0; h < read.size(); ++h) heads[group.heads[h]].patterns = read[h].patterns;
  }
  return heads;
}

std::vector<int64_t> all_queries(const ScreenedRows& screened) {
  std::vector<int64_t> all(static_cast<size_t>(screened.asked.asked()));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

/// Equal parts of the queries by position, at most `parts`; empty: all are asked at one position.
std::vector<std::vector<int64_t>> by_position(const ScreenedRows& screened, int64_t parts) {
  const at::Tensor flat = screened.asked.queries.reshape({-1}).contiguous();
  const int64_t* query = flat.const_data_ptr<int64_t>();
  std::vector<int64_t> order = all_queries(screened);
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return query[a] < query[b]; });
  std::vector<std::vector<int64_t>> groups;
  if (query[order.front()] == query[order.back()]) return groups;
  const int64_t count = std::ssize(order);
  parts = std::min(parts, count);
  for (int64_t part = 0; part < parts; ++part)
    groups.emplace_back(order.begin() + count * part / parts,
                        order.begin() + count * (part + 1) / parts);
  return groups;
}

/// Whether a null can be drawn: 2 rows count, and permuting their targets changes something.
bool has_null(const ScreenRows& rows, size_t pattern, NullTargets targets) {
  const std::vector<int64_t>* first = nullptr;
  int64_t counted = 0;
  bool differ = false;
  for (size_t r = 0; r < rows.query.size(); ++r) {
    const auto& own = rows.patterns[pattern].positions[r];
    if (own.empty() || rows.controls[r].empty()) continue;
    ++counted;
    if (first != nullptr) differ = differ || own != *first;
    first = &own;
  }
  return counted >= 2 && (targets == NullTargets::kUniform || differ);
}

/// The null over all heads. Where layers see different keys, its figures are those of the layers
/// that reach most.
std::optional<SelectivityNull> null_of(const ScreenedRows& screened, size_t pattern,
                                       const SelectivityNullOptions& options) {
  std::optional<SelectivityNull> whole;
  std::vector<HeadNull> heads(screened.heads.size());
  for (const auto& group : screened.groups) {
    if (!has_null(group.rows, pattern, options.targets)) continue;
    SelectivityNull own = calibrate_selectivity_null(
        group.rows, pattern, std::ssize(group.heads),
        [&](size_t h) { return floats(screened.weights[group.heads[h]]); }, options);
    for (size_t h = 0; h < group.heads.size(); ++h) heads[group.heads[h]] = own.heads[h];
    if (!whole || !(own.pooled.p99 <= whole->pooled.p99)) whole = std::move(own);
  }
  if (whole) whole->heads = std::move(heads);
  return whole;
}

int64_t rows_that_count(const ScreenedRows& screened, size_t pattern) {
  const ScreenRows& rows = screened.groups.front().rows;
  int64_t counted = 0;
  for (size_t r = 0; r < rows.query.size(); ++r)
    counted += !rows.patterns[pattern].positions[r].empty() && !rows.controls[r].empty();
  return counted;
}

/// The line of one pattern; heads carry its readings at `place`.
ScreenedPattern line_of(const ScreenedRows& screened, size_t pattern,
                        const std::vector<HeadReading>& heads, size_t place,
                        const ScreenCircuit& circuit, const ScreenRequest& request) {
  ScreenedPattern line;
  line.pattern = screened.asked.patterns[pattern].name;
  line.batch = screened.asked.batch;
  line.rows = rows_that_count(screened, pattern);
  line.context = screened.span;
  line.threshold = circuit.threshold;
  line.members = circuit.members;
  line.permuted =
      null_of(screened, pattern, {NullTargets::kPermuted, request.null_draws, request.null_seed});
  line.uniform =
      null_of(screened, pattern, {NullTargets::kUniform, request.null_draws, request.null_seed});
  const bool permuted = request.recall_null == NullTargets::kPermuted && line.permuted;
  if (const auto& chosen = permuted ? line.permuted : line.uniform)
    line.recall_threshold = chosen->recall_threshold;
  for (const HeadReading& head : heads) {
    const PatternReading& own = head.patterns[place];
    if (own.selectivity >= line.recall_threshold) line.above_recall.push_back(head.id);
    if (std::isnan(own.selectivity) ||
        (line.best && own.selectivity <= line.best_reading.selectivity))
      continue;
    line.best = head.id;
    line.best_reading = own;
  }
  return line;
}

Screen screen_of(const ScreenedRows& screened, const std::vector<HeadReading>& heads,
                 const ScreenRequest& request) {
  return screen_heads(screened.asked.patterns, heads, screened.span, request.rules, request.top_k);
}

std::optional<ClassStability> stability_over_positions(const ScreenedRows& screened,
                                                       const ScreenRequest& request) {
  std::vector<Labels> labelings;
  for (const auto& part : by_position(screened, request.query_positions))
    labelings.push_back(screen_of(screened, readings_of(screened, part), request).head_class);
  if (labelings.size() < 2) return std::nullopt;
  return class_stability(labelings);
}

void check_request(const ScreenRequest& request) {
  const auto refuse = [](const std::string& what) {
    throw std::invalid_argument("headscope screen: " + what);
  };
  if (request.null_draws < 1)
    refuse("null_draws must be 1 or more, got " + std::to_string(request.null_draws));
  if (request.top_k && *request.top_k < 1)
    refuse("top_k must be 1 or more, got " + std::to_string(*request.top_k));
  std::vector<std::string> names;
  for (const ScreenPattern& own : request.own_rows) {
    if (std::count(names.begin(), names.end(), own.pattern.name) > 0)
      refuse("pattern '" + own.pattern.name + "' is given twice in own_rows");
    names.push_back(own.pattern.name);
    if (!own.answers.empty() && own.loss)
      refuse("pattern '" + own.pattern.name + "' has answers and a loss; give one of them");
  }
}

}  // namespace

ScreenedRows ScreenRunner::run_rows(AskedRows asked, ScreenControls controls,
                                    bool with_null) const {
  ScreenedRows screened;
  const ScreenRows rows = screen_rows(asked, controls);
  screened.span = span_of(rows, probe_.options.window);
  const int64_t count = asked.tokens.size(0);
  RowAttention attention(asked.queries, asked.context());
  {
    Taps::Pass pass(taps_);
    pass.screen(attention);
    const HostEvaluation evaluation(probe_.host);
    const ForwardFunction& attend =
        probe_.host.attention_forward ? probe_.host.attention_forward : probe_.host.forward;
    const auto run = [&](const at::Tensor& tokens, bool random) {
      for (int64_t begin = 0; begin < count; begin += probe_.options.micro_batch) {
        const int64_t n = std::min(probe_.options.micro_batch, count - begin);
        attention.expect(begin, n, random);
        pass.forward(attend, tokens.narrow(0, begin, n));
        attention.check();
      }
    };
    run(asked.tokens, false);
    if (with_null)
      run(random_null_batch(count, std::max<int64_t>(asked.context(), 16),
                            probe_.options.vocab_size)
              .narrow(1, 0, asked.context()),
          true);
  }
  for (const auto& [layer, own] : attention.layers()) {
    auto group = std::find_if(screened.groups.begin(), screened.groups.end(), [&](const auto& g) {
      return g.seen.defined() == own.seen.defined() &&
             (!own.seen.defined() || g.seen.equal(own.seen));
    });
    if (group == screened.groups.end()) {
      screened.groups.push_back(
          {own.seen, own.seen.defined() ? seen_rows(rows, own.seen) : rows, {}});
      group = screened.groups.end() - 1;
    }
    for (int64_t h = 0; h < own.weights.size(0); ++h) {
      group->heads.push_back(screened.heads.size());
      screened.weights.push_back(own.weights[h]);
      HeadReading& head = screened.heads.emplace_back();
      head.id = {static_cast<int32_t>(layer), static_cast<int32_t>(h)};
      head.sink_mass = own.weights[h].select(1, 0).to(at::kDouble).mean().item<double>();
    }
  }
  read_spectra(attention.spectra(), screened.heads);
  screened.asked = std::move(asked);
  return screened;
}

ScreenResult ScreenRunner::run(const ScreenRequest& request, const CaptureInfo& info) {
  check_request(request);
  // All rows are drawn before any is run: what cannot work is refused at once.
  AskedRows main_rows = asked_rows(request.batch, request, probe_.options, 0);
  std::vector<AskedRows> compared, own;
  std::map<ScreenBatch, uint32_t> drawn{{request.batch, 1}};
  for (const ScreenBatch batch : request.compared)
    compared.push_back(asked_rows(batch, request, probe_.options, drawn[batch]++));
  for (const ScreenPattern& pattern : request.own_rows) {
    own.push_back(own_rows(pattern, probe_.options));
    const auto named = [&](const Pattern& p) { return p.name == pattern.pattern.name; };
    if (std::any_of(main_rows.patterns.begin(), main_rows.patterns.end(), named))
      throw std::invalid_argument("headscope screen: pattern '" + pattern.pattern.name +
                                  "' is asked of the batch and of its own rows; rename one");
  }

  ScreenResult result;
  {
    const ScopedTimer timer(health_.probe_nanoseconds);
    const ScreenedRows screened = run_rows(std::move(main_rows), request.controls, true);
    result.batch = screened.asked.batch;
    result.context = screened.span;
    result.heads = readings_of(screened, all_queries(screened));
    if (const auto last = analysis_.last_probe())
      for (const HeadReading& known : last->heads)
        for (HeadReading& head : result.heads)
          if (head.id == known.id) head.pr_integral = known.pr_integral;
    result.screen = screen_of(screened, result.heads, request);
    for (size_t p = 0; p < screened.asked.patterns.size(); ++p)
      result.patterns.push_back(
          line_of(screened, p, result.heads, p, result.screen.circuits[p], request));
    std::vector<double> real, null;
    for (const HeadReading& head : result.heads) {
      real.push_back(head.participation_ratio);
      null.push_back(head.null_participation_ratio);
    }
    const int64_t n = screened.asked.asked();
    result.ratio = calibrate_ratio_null({real, n}, {null, n});
    result.over_positions = stability_over_positions(screened, request);

    std::vector<Labels> labelings{result.screen.head_class};
    for (AskedRows& rows : compared) {
      const ScreenedRows other = run_rows(std::move(rows), request.controls, false);
      labelings.push_back(
          screen_of(other, readings_of(other, all_queries(other)), request).head_class);
    }
    if (labelings.size() > 1) result.over_batches = class_stability(labelings);

    for (AskedRows& rows : own) {
      const ScreenedRows other = run_rows(std::move(rows), ScreenControls::kOrdinary, false);
      const auto heads = readings_of(other, all_queries(other));
      const Screen screen = screen_heads(other.asked.patterns, heads, other.span, request.rules);
      for (size_t h = 0; h < heads.size(); ++h)
        result.heads[h].patterns.push_back(heads[h].patterns.front());
      result.patterns.push_back(line_of(other, 0, heads, 0, screen.circuits.front(), request));
    }
  }
  for (HeadReading& head : result.heads) {
    const auto best = head.patterns.begin() + std::ssize(result.screen.circuits);
    const auto own_class =
        best_pattern({head.patterns.begin(), best}, result.screen.class_threshold);
    head.best_pattern = own_class ? result.patterns[*own_class].pattern : "unclassified";
  }
  if (request.ablate) ablate_members(request, result);
  keep_calibrations(request, result, info);
  return result;
}

void ScreenRunner::ablate_members(const ScreenRequest& request, ScreenResult& result) const {
  const size_t on_batch = result.screen.circuits.size();
  const auto& patterns = request.patterns.empty() ? probe_.options.patterns : request.patterns;
  for (size_t p = 0; p < result.patterns.size(); ++p) {
    ScreenedPattern& line = result.patterns[p];
    if (line.members.empty()) continue;
    AblationRequest ablation;
    ablation.heads = line.members;
    ablation.rule = request.verdict;
    if (p < on_batch) {
      // Those that the prompts' rows add have no behaviour of their own.
      ablation.batch = p < patterns.size() ? patterns[p].metric : BehaviourMetric::kNone;
      if (ablation.batch == BehaviourMetric::kNone) continue;
    } else {
      const ScreenPattern& own = request.own_rows[p - on_batch];
      if (own.answers.empty() && !own.loss) continue;
      ablation.tokens = own.tokens;
      ablation.query_positions = own.query;
      ablation.targets = own.answers;
      ablation.loss = own.loss;
    }
    line.ablation = ablations_.ablate(probe_, ablation).report;
    line.ablation->pattern = line.pattern;
  }
}

void ScreenRunner::keep_calibrations(const ScreenRequest& request, const ScreenResult& result,
                                     const CaptureInfo& info) const {
  std::vector<NullCalibration> kept;
  const auto entry = [&](const NullDistribution& null) -> NullCalibration& {
    NullCalibration& own = kept.emplace_back();
    own.step = info.step;
    own.batch = result.batch;
    own.max = null.max;
    own.p99 = null.p99;
    own.p95 = null.p95;
    own.median = null.median;
    return own;
  };
  for (size_t p = 0; p < result.patterns.size(); ++p) {
    const ScreenedPattern& line = result.patterns[p];
    // The chosen one last: its threshold is the one that stands.
    std::vector<const std::optional<SelectivityNull>*> nulls{&line.uniform, &line.permuted};
    if (request.recall_null == NullTargets::kUniform) std::swap(nulls[0], nulls[1]);
    for (const auto* null : nulls) {
      if (!*null) continue;
      NullCalibration& own = entry((*null)->pooled);
      own.batch = line.batch;
      own.pattern = line.pattern;
      own.null = to_string((*null)->options.targets);
      own.context = line.context;
      own.rows = (*null)->rows;
      own.draws = (*null)->options.draws;
      own.recall_threshold = (*null)->recall_threshold;
      for (const HeadReading& head : result.heads)
        own.heads_above += head.patterns[p].selectivity >= own.recall_threshold;
    }
  }
  NullCalibration& ratio = entry(result.ratio.null);
  ratio.null = "random_tokens";
  ratio.context = result.context;
  ratio.rows = result.ratio.samples;
  ratio.draws = 1;
  ratio.heads_above = result.ratio.above_max;
  const bool of_the_probe = request.batch == ScreenBatch::kPlanted &&
                            (request.context == 0 || request.context == probe_.options.context);
  analysis_.take_calibrations(kept, of_the_probe);
  analysis_.flush(info);
}

}  // namespace headscope
