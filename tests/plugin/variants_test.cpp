#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

#include "csrc/probe/query_plan.h"
#include "tests/support/models/tiny_model.h"
#include "tests/support/numeric/attention_rows.h"

// What attention may look like, through a monitor: a layer written out with plain tensor operators
// beside the figures that the monitor reads from it.
namespace headscope {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kTokens = 16, kVocab = 64, kContext = 64;
constexpr size_t kInduction = 0, kPrevious = 1, kFirst = 3, kSelf = 4;

struct Shape {
  int64_t heads = 4, key_heads = 4, width = 8, value_width = 8;
};

at::Tensor normal(at::IntArrayRef sizes, uint64_t seed) {
  return at::randn(sizes, at::detail::createCPUGenerator(seed));
}

/// q, k, v of tokens [B, T] from fixed tables, and attention [B, Hq, T, T (+ 1 with sinks)].
struct Attended {
  at::Tensor q, k, v, weights, z;

  Attended(const Shape& shape, const at::Tensor& tokens, const AttentionCall& call) {
    const int64_t batch = tokens.size(0), length = tokens.size(1);
    const auto table = [&](int64_t heads, int64_t width, uint64_t seed) {
      return (at::embedding(normal({kVocab, heads * width}, seed), tokens) +
              normal({length, heads * width}, seed + 10))
          .view({batch, length, heads, width})
          .transpose(1, 2);
    };
    q = table(shape.heads, shape.width, 1);
    k = table(shape.key_heads, shape.width, 2);
    v = table(shape.key_heads, shape.value_width, 3);
    const int64_t group = shape.heads / shape.key_heads;
    at::Tensor scores = at::matmul(q, k.repeat_interleave(group, 1).transpose(2, 3)) *
                        call.scale.value_or(1 / std::sqrt(static_cast<double>(shape.width)));
    if (call.softcap > 0) scores = at::tanh(scores / call.softcap) * call.softcap;
    if (call.bias && call.bias->scalar_type() == at::kBool) {
      scores = scores.masked_fill(call.bias->logical_not(), -INFINITY);
    } else if (call.bias) {
      scores = scores + *call.bias;
    }
    scores =
        scores.masked_fill(testing::visible_keys(call, batch, length).logical_not(), -INFINITY);
    if (call.sinks) {
      const at::Tensor sink = call.sinks->view({1, -1, 1, 1}).expand({batch, -1, length, 1});
      scores = at::cat({scores, sink}, 3);
    }
    weights = at::softmax(scores, 3).nan_to_num(0);  // a query of padding sees nothing
    z = at::matmul(weights.narrow(3, 0, length), v.repeat_interleave(group, 1));
  }
};

struct Variant {
  const char* name;
  Shape shape;
  AttentionCall (*call)(const at::Tensor& tokens);
  void (*forget)(AttentionCall& call);  // null: nothing that could be forgotten
};

/// A window within a training row, and the least that a probe takes.
int64_t window_of(const at::Tensor& tokens) { return tokens.size(1) == kTokens ? 9 : 16; }

/// Three documents in a training row; a probe row (longer) is one document.
at::Tensor documents_of(const at::Tensor& tokens) {
  at::Tensor documents = at::zeros({tokens.size(0), tokens.size(1)}, at::kLong);
  if (tokens.size(1) != kTokens) return documents;
  documents.narrow(1, 6, 1).fill_(1);  // one of a single token
  documents.narrow(1, 7, kTokens - 7).fill_(2);
  return documents;
}

/// Keeps all but the first (or last) five tokens of a training row's even sequences.
at::Tensor kept_tokens(const at::Tensor& tokens, bool left) {
  at::Tensor keep = at::ones({tokens.size(0), tokens.size(1)}, at::kBool);
  if (tokens.size(1) != kTokens) return keep;
  for (int64_t b = 0; b < tokens.size(0); b += 2)
    keep[b].narrow(0, left ? 0 : kTokens - 5, 5).fill_(false);
  return keep;
}

AttentionCall padded(const at::Tensor& tokens, bool left) {
  const at::Tensor keep = kept_tokens(tokens, left);
  return {.bias = keep.view({tokens.size(0), 1, 1, tokens.size(1)}), .keep = keep};
}

const Variant kVariants[] = {
    {"plain", {}, [](const at::Tensor&) { return AttentionCall{}; }, nullptr},
    {"window",
     {},
     [](const at::Tensor& tokens) { return AttentionCall{.window = window_of(tokens)}; },
     [](AttentionCall& call) { call.window = 0; }},
    {"softcap",
     {},
     [](const at::Tensor&) { return AttentionCall{.scale = 1.0, .softcap = 2.0}; },
     [](AttentionCall& call) { call.softcap = 0; }},
    {"sinks",
     {},
     [](const at::Tensor&) { return AttentionCall{.sinks = normal({4}, 7)}; },
     [](AttentionCall& call) { call.sinks = std::nullopt; }},
    {"documents",
     {},
     [](const at::Tensor& tokens) { return AttentionCall{.documents = documents_of(tokens)}; },
     [](AttentionCall& call) { call.documents = std::nullopt; }},
    {"block_diagonal_mask",
     {},
     [](const at::Tensor& tokens) {
       const AttentionCall packed{.documents = documents_of(tokens)};
       return AttentionCall{.bias = testing::visible_keys(packed, tokens.size(0), tokens.size(1)),
                            .is_causal = false};
     },
     [](AttentionCall& call) { call.bias = std::nullopt, call.is_causal = true; }},
    {"padding_left",
     {},
     [](const at::Tensor& tokens) { return padded(tokens, true); },
     [](AttentionCall& call) { call.bias = std::nullopt; }},
    {"padding_right", {}, [](const at::Tensor& tokens) { return padded(tokens, false); }, nullptr},
    {"latent_widths",
     {.width = 192, .value_width = 128},
     [](const at::Tensor&) { return AttentionCall{.scale = 0.05}; },
     [](AttentionCall& call) { call.scale = std::nullopt; }},
    {"grouped_heads",
     {.heads = 14, .key_heads = 2},
     [](const at::Tensor& tokens) {
       return AttentionCall{.window = window_of(tokens), .sinks = normal({14}, 8)};
     },
     [](AttentionCall& call) { call.window = 0; }},
};

/// A monitor and layers of written-out attention; layer l is told what `told` gives.
struct Watched {
  std::shared_ptr<std::vector<std::string>> log = std::make_shared<std::vector<std::string>>();
  std::unique_ptr<Monitor> monitor;
  std::vector<Attended> last;  // of each layer, in the last forward

  Watched() {
    Options options;
    options.sampled_rows = kTokens;  // every query
    options.log = [lines = log, mutex = std::make_shared<std::mutex>()](LogLevel,
                                                                        const std::string& line) {
      const std::scoped_lock lock(*mutex);
      lines->push_back(line);
    };
    monitor = std::make_unique<Monitor>(std::move(options), std::vector<std::shared_ptr<Sink>>{});
  }

  void layer(int64_t index, const Shape& shape, const at::Tensor& tokens, const AttentionCall& call,
             const AttentionCall& told) {
    last.emplace_back(shape, tokens, call);
    const Attended& own = last.back();
    const at::Tensor z = monitor->observe(index, own.q, own.k, own.v, own.z, told);
    EXPECT_TRUE(z.is_same(own.z));
  }

  /// One measured training step over `tokens`, told as ids.
  template <typename Layers>
  std::shared_ptr<const Snapshot> train(const at::Tensor& tokens, Layers&& layers) {
    last.clear();
    {
      auto scope = monitor->begin_step({.step = 0});
      scope.micro_batch(tokens);
      layers();
    }
    return monitor->report().last_train;
  }

  uint64_t self_check_errors() { return monitor->health().errors.at("self_check"); }
};

/// Rows of distinct tokens: no pattern by content has a target, so that controls are known.
at::Tensor distinct_rows() {
  at::Tensor tokens = at::empty({3, kTokens}, at::kLong);
  for (int64_t b = 0; b < 3; ++b)
    tokens[b].copy_(
        at::randperm(kVocab, at::detail::createCPUGenerator(70), at::kLong).narrow(0, b, kTokens));
  return tokens;
}

/// The targets that the standard patterns have at places counted from the query or the start.
std::set<int64_t> special_keys(int64_t tokens, int64_t query) {
  const std::vector<int64_t> ids(static_cast<size_t>(tokens), 0);
  std::set<int64_t> special;
  for (const Pattern& pattern : standard_patterns()) {
    if (pattern.null != NullKind::kEffectBound) continue;
    for (const int64_t key : pattern.targets(ids, query)) special.insert(key);
  }
  return special;
}

/// What a head's readings over all kept queries must be.
struct Expected {
  double entropy = 0, first_mass = 0, self_mass = 0;
  double control = 0;  // per ordinary key, summed over rows
  int64_t rows = 0, self_rows = 0;

  Expected(const Attended& layer, const AttentionCall& call, int64_t head) {
    const int64_t batch = layer.q.size(0), tokens = layer.q.size(2);
    const at::Tensor mask = testing::visible_keys(call, batch, tokens);
    const at::Tensor weights = layer.weights.to(at::kDouble);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t t = 0; t < tokens; ++t) {
        if (call.keep && !(*call.keep)[b][t].item<bool>()) continue;
        const at::Tensor p = weights[b][head][t].contiguous();
        const double* mass = p.const_data_ptr<double>();
        for (int64_t j = 0; j < p.size(0); ++j)
          entropy -= mass[j] > 0 ? mass[j] * std::log(mass[j]) : 0;
        first_mass += mass[0];
        ++rows;
        const std::set<int64_t> special = special_keys(tokens, t);
        std::vector<int64_t> ordinary;
        for (int64_t j = 1; j < t - 5; ++j) {
          if (special.contains(j)) continue;
          const bool kept = !call.keep || (*call.keep)[b][j].item<bool>();
          const bool seen =
              mask[b][0][t][j].item<bool>() &&
              (!call.bias ||
               call.bias->expand({batch, 1, tokens, tokens})[b][0][t][j].item<bool>());
          if (kept && seen) ordinary.push_back(j);
        }
        if (ordinary.empty()) continue;
        for (const int64_t j : ordinary) control += mass[j] / static_cast<double>(ordinary.size());
        self_mass += mass[t];
        ++self_rows;
      }
    }
  }
  double selectivity() const { return self_mass / control; }
};

void expect_train(const Snapshot& snapshot, int64_t layer, const Attended& attended,
                  const AttentionCall& call) {
  for (const HeadReading& head : snapshot.heads) {
    if (head.id.layer != layer) continue;
    const Expected want(attended, call, head.id.head);
    const double rows = static_cast<double>(want.rows);
    EXPECT_NEAR(head.entropy, want.entropy / rows, 1e-4) << head.id.head;
    EXPECT_NEAR(head.sink_mass, want.first_mass / rows, 1e-5);
    EXPECT_NEAR(head.patterns[kSelf].mass, want.self_mass / static_cast<double>(want.self_rows),
                1e-5);
    EXPECT_NEAR(head.patterns[kSelf].selectivity / want.selectivity(), 1, 1e-3);
    EXPECT_TRUE(std::isnan(head.patterns[kInduction].selectivity));
  }
}

class MonitoredVariant : public ::testing::TestWithParam<Variant> {};

TEST_P(MonitoredVariant, ATrainingStepReadsWhatTheLayerDid) {
  const Variant& variant = GetParam();
  const at::Tensor tokens = distinct_rows();
  const AttentionCall call = variant.call(tokens);
  Watched watched;
  const auto snapshot =
      watched.train(tokens, [&] { watched.layer(0, variant.shape, tokens, call, call); });
  ASSERT_NE(snapshot, nullptr);
  ASSERT_EQ(static_cast<int64_t>(snapshot->heads.size()), variant.shape.heads);
  EXPECT_EQ(watched.self_check_errors(), 0u);
  EXPECT_THAT(*watched.log, IsEmpty());
  expect_train(*snapshot, 0, watched.last.at(0), call);
}

class ForgottenField : public ::testing::TestWithParam<Variant> {};

TEST_P(ForgottenField, IsFoundOut) {
  const Variant& variant = GetParam();
  const at::Tensor tokens = distinct_rows();
  const AttentionCall call = variant.call(tokens);
  AttentionCall told = call;
  variant.forget(told);
  Watched watched;
  const auto snapshot =
      watched.train(tokens, [&] { watched.layer(2, variant.shape, tokens, call, told); });
  EXPECT_EQ(watched.self_check_errors(), 1u);
  EXPECT_THAT(*watched.log, Contains(HasSubstr("layer 2: the output given to observe() differs")));
  EXPECT_TRUE(std::isnan(snapshot->heads.at(0).entropy));
}

TEST_P(MonitoredVariant, AProbeReadsWhatTheLayerDid) {
  const Variant& variant = GetParam();
  Watched watched;
  std::vector<Attended> planted;
  ProbeOptions probe{.vocab_size = kVocab, .context = kContext, .examples = 16, .window = 16};
  probe.pr_null = probe.verify = false;
  probe.whole_every = 1;
  watched.monitor->set_probe(ProbeHost{[&](const at::Tensor& tokens) {
                                         const AttentionCall call = variant.call(tokens);
                                         watched.layer(0, variant.shape, tokens, call, call);
                                         if (planted.empty()) planted = watched.last;
                                         return at::Tensor();
                                       },
                                       {}},
                             probe);
  { auto scope = watched.monitor->begin_step({.step = 0, .tokens_seen = 0}); }
  const auto snapshot = watched.monitor->report().last_probe;
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(watched.self_check_errors(), 0u);
  const at::Tensor p = planted.at(0).weights.select(2, kContext - 1).to(at::kDouble);
  const at::Tensor entropy = -(p * p.clamp_min(1e-300).log()).sum(-1).mean(0);
  // Self is read at sampled queries, which depend on the probe's seed alone.
  const QueryPlan queries = plan_queries(at::zeros({16, kContext}, at::kLong), resolved(probe));
  const at::Tensor asked = queries.chunks.at(0).rows;
  const at::Tensor on_self = planted.at(0).weights.to(at::kDouble).diagonal(0, 2, 3);  // [N, H, T]
  for (const HeadReading& head : snapshot->heads) {
    EXPECT_NEAR(head.entropy, entropy[head.id.head].item<double>(), 1e-4);
    EXPECT_NEAR(head.patterns[kSelf].mass,
                on_self.select(1, head.id.head).gather(1, asked).mean().item<double>(), 1e-5);
    EXPECT_TRUE(head.patterns[kInduction].selectivity > 0);
    EXPECT_TRUE(head.prefix_matching >= 0);
    EXPECT_EQ(std::isnan(head.patterns[kFirst].selectivity),
              variant.call(at::zeros({1, 64}, at::kLong)).window > 0);
  }
}

std::string name_of(const ::testing::TestParamInfo<Variant>& info) { return info.param.name; }

std::vector<Variant> forgettable() {
  std::vector<Variant> variants(std::begin(kVariants), std::end(kVariants));
  std::erase_if(variants, [](const Variant& variant) { return variant.forget == nullptr; });
  return variants;
}

INSTANTIATE_TEST_SUITE_P(Calls, MonitoredVariant, ::testing::ValuesIn(kVariants), name_of);
INSTANTIATE_TEST_SUITE_P(Calls, ForgottenField, ::testing::ValuesIn(forgettable()), name_of);

TEST(Documents, NoTargetLiesInAnother) {
  // The second half repeats the first, and is another document.
  const at::Tensor tokens = at::randperm(kVocab, at::detail::createCPUGenerator(71), at::kLong)
                                .narrow(0, 0, 12)
                                .repeat({2, 2});
  const AttentionCall packed{
      .documents = at::cat({at::zeros({2, 12}, at::kLong), at::ones({2, 12}, at::kLong)}, 1)};
  const AttentionCall masked{.bias = testing::visible_keys(packed, 2, 24)};
  for (const AttentionCall& call : {AttentionCall{}, packed, masked}) {
    Watched watched;
    const auto snapshot = watched.train(tokens, [&] { watched.layer(0, {}, tokens, call, call); });
    EXPECT_EQ(watched.self_check_errors(), 0u);
    const bool one_document = !call.documents && !call.bias;
    for (const HeadReading& head : snapshot->heads) {
      EXPECT_EQ(std::isfinite(head.patterns[kInduction].selectivity), one_document);
      EXPECT_TRUE(std::isfinite(head.patterns[kPrevious].selectivity));
    }
  }
}

TEST(LocalAndGlobalLayers, AreEachComparedWithTheKeysTheySee) {
  const at::Tensor tokens = distinct_rows();
  const AttentionCall calls[] = {{.window = 9}, {}, {.window = 11}, {.window = 9}, {}};
  Watched watched;
  const auto snapshot = watched.train(tokens, [&] {
    for (int64_t l = 0; l < 5; ++l) watched.layer(l, {}, tokens, calls[l], calls[l]);
  });
  EXPECT_EQ(watched.self_check_errors(), 0u);
  for (int64_t l = 0; l < 5; ++l)
    expect_train(*snapshot, l, watched.last.at(static_cast<size_t>(l)), calls[l]);
}

TEST(ProbeWindow, AHiddenTargetIsNotMeasuredAndSaidOnce) {
  for (const int64_t window : {0, 16}) {
    Watched watched;
    ProbeOptions probe{.vocab_size = kVocab, .context = kContext, .examples = 16};
    probe.window = window;
    probe.verify = false;
    watched.monitor->set_probe(ProbeHost{[&](const at::Tensor& tokens) {
                                           for (const int64_t l : {0, 1})
                                             watched.layer(l, {}, tokens, {.window = 16},
                                                           {.window = 16});
                                           watched.layer(2, {}, tokens, {}, {});
                                           return at::Tensor();
                                         },
                                         {}},
                               probe);
    { auto scope = watched.monitor->begin_step({.step = 0, .tokens_seen = 0}); }
    for (const HeadReading& head : watched.monitor->report().last_probe->heads) {
      const bool sees = window > 0 || head.id.layer == 2;
      EXPECT_EQ(std::isfinite(head.patterns[kInduction].selectivity), sees);
      EXPECT_EQ(std::isfinite(head.patterns[kInduction].margin_z), sees);
      EXPECT_EQ(std::isfinite(head.prefix_matching), sees);
      EXPECT_TRUE(std::isfinite(head.patterns[kPrevious].selectivity));
      EXPECT_EQ(std::isfinite(head.patterns[kFirst].selectivity), head.id.layer == 2);
    }
    EXPECT_NEAR(watched.monitor->report().circuits.at(kInduction).formed_threshold,
                50.0 * (window > 0 ? 15 : 63) / 255, 1e-9);
    int said = 0;
    for (const std::string& line : *watched.log) {
      if (line.find("induction") == std::string::npos) continue;
      EXPECT_THAT(line, HasSubstr("layer 0: "));
      EXPECT_THAT(line, HasSubstr("ProbeOptions::window"));
      ++said;
    }
    EXPECT_EQ(said, window > 0 ? 0 : 1);
  }
}

/// What is logged when a training step's only layer is called like this.
template <typename Call>
std::vector<std::string> refusal(Call&& call) {
  Watched watched;
  {
    auto scope = watched.monitor->begin_step({.step = 0});
    call(*watched.monitor);
  }
  EXPECT_EQ(watched.monitor->health().errors.at("tap"), 1u);
  EXPECT_EQ(watched.monitor->report().last_train, nullptr);
  return *watched.log;
}

TEST(Refusals, NameTheLayerAndWhatIsNotMeasured) {
  const at::Tensor q = normal({2, 4, 6, 8}, 80), one = q.narrow(2, 5, 1);
  EXPECT_THAT(refusal([&](Monitor& monitor) {
                EXPECT_TRUE(monitor.observe(3, one, q, q, one, {.is_causal = false}).is_same(one));
              }),
              Contains(HasSubstr("layer 3: cross-attention is not measured, nor decoding with a "
                                 "key-value cache: q has Tq = 1 tokens and k has Tk = 6")));
  EXPECT_THAT(
      refusal([&](Monitor& monitor) { static_cast<void>(monitor.observe(1, q, one, one, q)); }),
      Contains(HasSubstr("q has Tq = 6 tokens and k has Tk = 1")));
  const at::Tensor nested = at::_nested_tensor_from_tensor_list({q[0], q[1]});
  EXPECT_THAT(refusal([&](Monitor& monitor) {
                static_cast<void>(monitor.observe(5, nested, nested, nested, nested));
              }),
              Contains(HasSubstr("layer 5: nested tensors are not measured")));
  const at::Tensor fp8 = q.to(at::kFloat8_e4m3fn);
  EXPECT_THAT(
      refusal([&](Monitor& monitor) { static_cast<void>(monitor.observe(0, fp8, fp8, fp8, fp8)); }),
      Contains(HasSubstr("layer 0: headscope: q must be float64, float32, bfloat16 or")));
  EXPECT_THAT(refusal([&](Monitor& monitor) {
                static_cast<void>(
                    monitor.observe(7, q, q, q, q, {.documents = at::zeros({2, 5}, at::kLong)}));
              }),
              Contains(HasSubstr("layer 7: headscope: documents must be int64 [B, T] = [2, 6]")));
  EXPECT_THAT(
      refusal([&](Monitor& monitor) {
        static_cast<void>(monitor.observe(7, q, q, q, q, {.keep = at::ones({2, 5}, at::kBool)}));
      }),
      Contains(HasSubstr("layer 7: keep must be bool [B, T] = [2, 6]")));
}

}  // namespace
}  // namespace headscope
