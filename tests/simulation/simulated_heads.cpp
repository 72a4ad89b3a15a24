#include "tests/simulation/simulated_heads.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <stdexcept>

#include "csrc/monitor/analysis/analysis.h"
#include "csrc/probe/probe_plan.h"
#include "headscope/probe_batch.h"

namespace headscope::simulation {
namespace {

constexpr int64_t kVocabulary = 10000;
constexpr size_t kDraws = 65536;  // 16 bits choose one

/// exp of kDraws scores: a query's scores are drawn independently from these.
std::vector<float> exp_scores(const Recipe& recipe, std::mt19937_64& engine) {
  std::vector<float> values(kDraws);
  std::normal_distribution<double> normal;
  std::student_t_distribution<double> student(3);
  for (float& value : values)
    value = static_cast<float>(
        std::exp(recipe.content * (recipe.heavy_tails ? student(engine) : normal(engine))));
  return values;
}

/// splitmix64: four draws from a table a number.
class Content {
 public:
  Content(std::vector<float> table, uint64_t seed) : table_(std::move(table)), state_(seed) {}

  void fill(at::Tensor& tensor) {
    float* values = tensor.data_ptr<float>();
    const int64_t count = tensor.numel();
    for (int64_t i = 0; i < count; i += 4) {
      uint64_t bits = next();
      for (int64_t j = i; j < std::min(i + 4, count); ++j, bits >>= 16)
        values[j] = table_[bits & 0xffff];
    }
  }

 private:
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }
  std::vector<float> table_;
  uint64_t state_;
};

/// One chunk's queries, B = n R of them: which keys belong to which group, and what the run's
/// effects make of exp(score).
struct Queries {
  int64_t rows = 0, sampled = 0, groups = 0;
  at::Tensor members;  ///< [B, G + 1, T] 0 or 1; the last group is every key up to the query
  at::Tensor keys;     ///< [B, G, 1] keys of a group, at least 1
  at::Tensor factors;  ///< [B, T, H], 0 beyond the query
};

/// Effects that a run draws once, as factors of exp(score).
struct Effects {
  at::Tensor position;  ///< [T, H]
  at::Tensor token;     ///< [V, H]; undefined: none
};

at::Tensor exp_of_normal(at::IntArrayRef sizes, double sd, std::mt19937_64& engine) {
  std::normal_distribution<double> normal(0, sd);
  at::Tensor tensor = at::empty(sizes, at::kFloat);
  float* values = tensor.data_ptr<float>();
  for (int64_t i = 0; i < tensor.numel(); ++i)
    values[i] = static_cast<float>(std::exp(normal(engine)));
  return tensor;
}

Effects draw_effects(const Recipe& recipe, const Extent& extent, std::mt19937_64& engine) {
  Effects effects;
  effects.position =
      recipe.position_effects > 0
          ? exp_of_normal({extent.context, extent.heads}, recipe.position_effects, engine)
          : at::ones({extent.context, extent.heads}, at::kFloat);
  effects.position[0].mul_(std::exp(recipe.sink));
  const int64_t fixed = std::lround(recipe.fixed_at * static_cast<double>(extent.context - 2));
  effects.position[fixed].mul_(std::exp(recipe.fixed_position));
  if (recipe.token_effects > 0)
    effects.token = exp_of_normal({kVocabulary, extent.heads}, recipe.token_effects, engine);
  return effects;
}

/// preferred: the group whose keys head 0 prefers; -1: none.
Queries queries_of(const at::Tensor& tokens, const at::Tensor& query_of, const at::Tensor& targets,
                   const at::Tensor& offsets, int64_t groups, int64_t preferred,
                   const Recipe& recipe, const Effects& effects) {
  Queries queries{query_of.size(0), query_of.size(1), groups, {}, {}, {}};
  const int64_t count = queries.rows * queries.sampled, context = tokens.size(1);
  queries.members = at::zeros({count, groups + 1, context}, at::kFloat);
  queries.keys = at::empty({count, groups, 1}, at::kFloat);
  auto members = queries.members.accessor<float, 3>();
  auto keys = queries.keys.accessor<float, 3>();
  const int64_t *target = targets.const_data_ptr<int64_t>(),
                *offset = offsets.const_data_ptr<int64_t>();
  for (int64_t b = 0; b < count; ++b) {
    for (int64_t g = 0; g < groups; ++g, ++offset) {
      for (int64_t i = offset[0]; i < offset[1]; ++i) members[b][g][target[i]] = 1;
      keys[b][g][0] = static_cast<float>(std::max<int64_t>(1, offset[1] - offset[0]));
    }
  }
  const at::Tensor distance =
      query_of.reshape({count, 1}) - at::arange(context, at::kLong).unsqueeze(0);
  const at::Tensor seen = distance.ge(0).to(at::kFloat);
  queries.members.select(1, groups).copy_(seen);
  at::Tensor falls = seen * at::exp(distance.clamp_min(0).to(at::kFloat) * -recipe.recency);
  queries.factors = falls.unsqueeze(-1) * effects.position;
  if (effects.token.defined())
    queries.factors.mul_(effects.token.index_select(0, tokens.reshape({-1}))
                             .view({queries.rows, 1, context, -1})
                             .expand({-1, queries.sampled, -1, -1})
                             .reshape({count, context, -1}));
  if (preferred >= 0)
    queries.factors.select(2, 0).mul_(1 + (recipe.preference - 1) *
                                              queries.members.select(1, preferred));
  return queries;
}

/// The answers of attention_mass for one draw of the content. Entropies, which no call looks at,
/// are left at 0.
AttentionRows rows_of(const Queries& queries, Content& content, at::Tensor& exp_score) {
  exp_score.resize_(queries.factors.sizes());
  content.fill(exp_score);
  exp_score.mul_(queries.factors);
  const at::Tensor sums = at::bmm(queries.members, exp_score);
  const at::Tensor own = sums.narrow(1, 0, queries.groups);
  const at::Tensor all = sums.narrow(1, queries.groups, 1);
  const auto by_head = [&](const at::Tensor& of_query) {  // [B, X, H] to [n, H, R, X]
    return of_query.view({queries.rows, queries.sampled, of_query.size(1), -1})
        .permute({0, 3, 1, 2})
        .contiguous();
  };
  AttentionRows rows;
  rows.mass = by_head(own / all);
  rows.score = by_head(at::log(own / queries.keys));
  rows.log_sum_exp = by_head(at::log(all)).squeeze(-1);
  rows.max_logit = by_head(at::log(at::amax(exp_score, {1}, true))).squeeze(-1);
  rows.first_mass = by_head(exp_score.narrow(1, 0, 1) / all).squeeze(-1);
  rows.entropy = at::zeros_like(rows.first_mass);
  return rows;
}

int64_t number_of(const std::vector<Pattern>& patterns, const std::string& name) {
  const auto found = std::find_if(patterns.begin(), patterns.end(),
                                  [&](const Pattern& pattern) { return pattern.name == name; });
  if (found == patterns.end()) throw std::invalid_argument("no pattern " + name);
  return found - patterns.begin();
}

}  // namespace

std::vector<Pattern> probed_patterns() {
  std::vector<Pattern> patterns = standard_patterns();
  patterns.push_back(
      {.name = "same-class",
       .targets =
           [](std::span<const int64_t> tokens, int64_t query) {
             std::vector<int64_t> same;
             for (int64_t key = 1; key < query; ++key)
               if ((tokens[static_cast<size_t>(key)] - tokens[static_cast<size_t>(query)]) % 10 ==
                   0)
                 same.push_back(key);
             return same;
           },
       .null = NullKind::kPermuteTargets});
  patterns.push_back({.name = "strided",
                      .targets =
                          [](std::span<const int64_t>, int64_t query) {
                            std::vector<int64_t> back;
                            for (int64_t key = query - 4; key >= 0 && back.size() < 8; key -= 4)
                              back.push_back(key);
                            return back;
                          },
                      .null = NullKind::kEffectBound});
  return patterns;
}

Calls simulate(const Recipe& recipe, const Extent& extent, uint64_t seed) {
  std::mt19937_64 engine(seed);
  const ProbeOptions options = resolved({.vocab_size = kVocabulary,
                                         .context = extent.context,
                                         .examples = extent.rows,
                                         .seed = static_cast<uint32_t>(seed),
                                         .patterns = probed_patterns()});
  const at::Tensor tokens = induction_batch({.examples = options.examples,
                                             .context = options.context,
                                             .token_low = options.token_low,
                                             .token_high = options.token_high,
                                             .seed = options.seed})
                                .tokens;
  const auto plan = std::make_shared<const ProbePlan>(plan_probe(tokens, options));

  const int64_t preferred =
      recipe.preferred.empty() ? -1 : number_of(plan->patterns, recipe.preferred);
  const int64_t at_queries =
      preferred < 0 ? -1 : plan->place_in_queries(static_cast<size_t>(preferred));
  const Effects effects = draw_effects(recipe, extent, engine);
  std::vector<Queries> last, sampled;
  for (size_t c = 0; c < plan->chunks.size(); ++c) {
    const ProbePlan::Chunk& chunk = plan->chunks[c];
    const QueryPlan::Chunk& asked = plan->queries.chunks[c];
    last.push_back(queries_of(chunk.tokens, chunk.rows, chunk.targets, chunk.offsets, plan->groups,
                              preferred, recipe, effects));
    sampled.push_back(queries_of(chunk.tokens, asked.rows, asked.targets, asked.offsets,
                                 plan->queries.groups(), at_queries, recipe, effects));
  }

  Options monitored;
  monitored.seed = seed;
  monitored.rules.probes_in_a_row = extent.probes_in_a_row;
  const auto health = std::make_shared<HealthCounters>();
  const auto gate = std::make_shared<FaultGate>(LogFunction(), *health);
  SinkThread sinks({}, {}, 64, health, gate);
  Analysis analysis(monitored, health, gate, sinks);
  analysis.set_probe(plan, "simulated");

  Content content(exp_scores(recipe, engine), engine());
  at::Tensor scratch = at::empty({0}, at::kFloat);
  for (int64_t probe = 1; probe <= extent.probes; ++probe) {
    Capture capture;
    capture.context = extent.context;
    LayerCapture& layer = capture.layers[0];
    // Of the spectrum the shape alone: how many heads there are.
    layer.spectrum = {at::zeros({extent.heads, 2, 2}), at::zeros({extent.heads, 2}),
                      at::zeros({1}, at::kLong), at::zeros({extent.heads, 2})};
    for (const Queries& queries : last)
      layer.attention.push_back(rows_of(queries, content, scratch));
    for (const Queries& queries : sampled)
      layer.query_attention.push_back(rows_of(queries, content, scratch));
    analysis.take_probe(capture, {.step = probe, .tokens = 1000. * static_cast<double>(probe)});
  }

  RunReport report;
  analysis.report(report);
  Calls calls;
  for (const Event& event : report.events) {
    if (event.kind == "emerging") calls.emerging.try_emplace(event.pattern, event.step);
    if (event.kind == "formed") calls.formed.try_emplace(event.pattern, event.step);
  }
  return calls;
}

}  // namespace headscope::simulation
