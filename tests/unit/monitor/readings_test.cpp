#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "csrc/monitor/analysis/attention_readings.h"
#include "csrc/monitor/analysis/spectra.h"
#include "csrc/probe/seen_keys.h"
#include "tests/unit/monitor/probed_layer.h"

namespace headscope {
namespace {

using test::blank;
using test::capture_of;
using test::induction_bias;
using test::kContext;
using test::kExamples;
using test::kHeads;
using test::kPatterns;
using test::make_probe;
using test::over_queries;
using test::Probe;
using test::windowed;

TEST(ProbeReadings, SelectivityMassAndMarginAreAnalytic) {
  const auto [batch, plan] = make_probe();
  auto readings = blank();
  const double c = 2.5, weight = std::exp(c), total = weight + kContext - 1;
  read_probe_attention(capture_of(plan, induction_bias(batch, c)), plan, readings);
  EXPECT_NEAR(readings[1].patterns[0].mass, weight / total, 1e-6);
  EXPECT_NEAR(readings[1].patterns[0].selectivity, weight, 1e-4);
  EXPECT_NEAR(readings[1].patterns[0].margin, c, 1e-5);
  EXPECT_NEAR(readings[1].patterns[0].control_mass, 1 / total, 1e-8);
  EXPECT_NEAR(readings[1].sink_mass, 1 / total, 1e-7);
  EXPECT_NEAR(readings[1].max_logit, c, 1e-6);
  for (size_t p = 0; p < kPatterns; ++p)
    EXPECT_NEAR(readings[0].patterns[p].selectivity, 1.0, 1e-5) << p;
  EXPECT_NEAR(readings[0].patterns[5].mass,
              over_queries(plan, [](double query) { return 4 / (query + 1); }), 1e-6);  // local
  EXPECT_NEAR(readings[0].entropy, std::log(kContext), 1e-5);
}

TEST(ProbeReadings, EveryControlDefinitionIsItsFormula) {
  const double c = 2.5, weight = std::exp(c), total = weight + kContext - 1, mass = weight / total;
  {
    const auto [batch, plan] = make_probe(ControlPositions::kAnalytic);
    auto readings = blank();
    read_probe_attention(capture_of(plan, induction_bias(batch, c)), plan, readings);
    EXPECT_NEAR(readings[1].patterns[0].selectivity, mass * (kContext - 1), 1e-4);
  }
  {
    const auto [batch, plan] = make_probe(ControlPositions::kMeasuredAll);
    auto readings = blank();
    read_probe_attention(capture_of(plan, induction_bias(batch, c)), plan, readings);
    EXPECT_NEAR(readings[1].patterns[0].selectivity, weight, 1e-3);
  }
  {
    // The reference's fixed positions hold the planted target in some rows: a ceiling that the
    // others do not have.
    const auto [batch, plan] = make_probe(ControlPositions::kReference50);
    auto readings = blank();
    const auto fixed = reference_control_positions(kContext);
    double inside = 0;
    for (const int64_t a : batch.pair_position)
      inside += std::count(fixed.begin(), fixed.end(), a + 1);
    read_probe_attention(capture_of(plan, induction_bias(batch, c)), plan, readings);
    const double rows = kExamples, positions = static_cast<double>(fixed.size());
    const double control =
        ((rows * positions - inside) / total + inside * mass) / (rows * positions);
    EXPECT_NEAR(readings[1].patterns[0].selectivity, mass / control, 1e-4);
  }
}

Probe probe_of(int64_t context) {
  const ProbeOptions options =
      resolved({.vocab_size = 512, .context = context, .examples = 8, .micro_batch = 8});
  const InductionBatch batch = induction_batch({.examples = 8,
                                                .context = context,
                                                .token_low = options.token_low,
                                                .token_high = options.token_high});
  return {batch, plan_probe(batch.tokens, options)};
}

TEST(ProbeReadings, AUniformHeadReadsOneAtAnyContext) {
  for (const int64_t context : {64, 256, 1024}) {
    const auto [batch, plan] = probe_of(context);
    auto readings = blank();
    read_probe_attention(capture_of(plan, {}), plan, readings);
    for (size_t p = 0; p < kPatterns; ++p) {
      EXPECT_NEAR(readings[0].patterns[p].selectivity, 1, 1e-4) << context << ' ' << p;
      EXPECT_NEAR(readings[0].patterns[p].margin, 0, 1e-5) << context << ' ' << p;
    }
  }
}

TEST(TrainReadings, AUniformHeadReadsOneAtAnyContext) {
  for (const int64_t context : {64, 256, 1024}) {
    const at::Tensor ids =
        at::randint(0, 40, {4, context}, at::detail::createCPUGenerator(5), at::kLong);
    LayerCapture layer;
    const std::vector<TrainPlan> plans{plan_train(4, context, ids, standard_patterns(), 16, 3)};
    const at::Tensor zero = at::zeros({4, kHeads, context, 2});
    layer.attention.push_back(attention_mass(zero, zero, plans[0].rows, plans[0].targets,
                                             plans[0].offsets, plans[0].groups, {}));
    layer.plan_of.push_back(0);
    auto readings = blank();
    read_train_attention(layer, plans, standard_patterns(), readings);
    for (size_t p = 0; p < kPatterns; ++p)
      EXPECT_NEAR(readings[0].patterns[p].selectivity, 1, 1e-4) << context << ' ' << p;
  }
}

/// Rows whose second half repeats the first: from each query of it one successor, T / 2 - 1 back.
struct RepeatedRows {
  static constexpr int64_t kRows = 4, kTokens = 64;
  at::Tensor ids = at::arange(kTokens / 2, at::kLong).repeat({kRows, 2});
  std::vector<TrainPlan> plans{plan_train(kRows, kTokens, ids, standard_patterns(), 16, 3)};

  /// A share m of heads 0, 1 and 2 on the targets of induction, previous-token and first-token, the
  /// rest on all other keys alike.
  std::vector<HeadReading> read(double m) const {
    at::Tensor bias = at::zeros({kRows, kHeads, kTokens, kTokens});
    for (int64_t query = 1; query < kTokens; ++query) {
      const double score = std::log(m / (1 - m) * static_cast<double>(query));
      const int64_t successor = query - kTokens / 2 + 1;
      if (successor > 0) bias.select(1, 0).select(1, query).select(1, successor) = score;
      bias.select(1, 1).select(1, query).select(1, query - 1) = score;
      bias.select(1, 2).select(1, query).select(1, 0) = score;
    }
    LayerCapture layer;
    const at::Tensor zero = at::zeros({kRows, kHeads, kTokens, 2});
    layer.attention.push_back(attention_mass(zero, zero, plans[0].rows, plans[0].targets,
                                             plans[0].offsets, plans[0].groups, {.bias = bias}));
    layer.plan_of.push_back(0);
    auto readings = blank();
    read_train_attention(layer, plans, standard_patterns(), readings);
    return readings;
  }

  /// Mean over the sampled queries that have a target and a control of `pattern`.
  template <typename Figure>
  double over_rows(size_t pattern, const Figure& figure) const {
    double sum = 0;
    int64_t counted = 0;
    for (int64_t i = 0; i < plans[0].rows.numel(); ++i) {
      const size_t entry = static_cast<size_t>(i) * kPatterns + pattern;
      if (plans[0].target_count[entry] == 0 || plans[0].control_count[entry] == 0) continue;
      sum += figure(static_cast<double>(plans[0].rows.const_data_ptr<int64_t>()[i]));
      ++counted;
    }
    return sum / static_cast<double>(counted);
  }
};

TEST(TrainReadings, APerfectHeadReadsItsFormula) {
  const RepeatedRows rows;
  const double m = .9;
  const auto readings = rows.read(m);
  const std::pair<size_t, size_t> followed[] = {{0, 0}, {1, 1}, {2, 3}};  // head, pattern
  for (const auto& [head, pattern] : followed) {
    const PatternReading& own = readings[head].patterns[pattern];
    const double beside = rows.over_rows(pattern, [&](double query) { return (1 - m) / query; });
    // Natural induction states the mass beyond the lag-matched key's.
    EXPECT_NEAR(own.mass, pattern == 0 ? m - beside : m, 1e-6) << pattern;
    EXPECT_NEAR(own.control_mass, beside, 1e-7) << pattern;
    EXPECT_NEAR(own.selectivity * beside / m, 1, 1e-5) << pattern;
    EXPECT_NEAR(own.margin,
                rows.over_rows(pattern, [&](double q) { return std::log(m / (1 - m) * q); }), 1e-4);
  }
  EXPECT_NEAR(readings[2].sink_mass, m, .05);
}

TEST(TrainReadings, AHeadWithAllItsMassOnTheTargetReadsTheCeiling) {
  const auto readings = RepeatedRows{}.read(1 - 1e-16);
  EXPECT_NEAR(readings[0].patterns[0].selectivity, 1e8, 1e3);
  EXPECT_NEAR(readings[1].patterns[1].selectivity, 1e8, 1e3);
  EXPECT_NEAR(readings[2].patterns[3].selectivity, 1e8, 1e3);
}

// Mass m on the one target of each query and the rest shared by all other keys: selectivity is
// m / (1 - m) times the keys beside, beyond T - 1 once m > 1/2.
TEST(ProbeReadings, APerfectHeadReadsItsFormula) {
  const auto [batch, plan] = make_probe();
  const double m = .9;
  at::Tensor bias = at::zeros({kExamples, kHeads, kContext, kContext});
  const double odds = m / (1 - m);
  for (int64_t n = 0; n < kExamples; ++n)
    bias[n][0][kContext - 1][batch.pair_position[static_cast<size_t>(n)] + 1] =
        std::log(odds * (kContext - 1));
  for (int64_t query = 1; query < kContext; ++query) {
    bias.select(1, 1).select(1, query).select(1, query - 1) =
        std::log(odds * static_cast<double>(query));
    bias.select(1, 2).select(1, query).select(1, 0) = std::log(odds * static_cast<double>(query));
  }
  auto readings = blank();
  read_probe_attention(capture_of(plan, bias), plan, readings);
  const PatternReading &induction = readings[0].patterns[0], &previous = readings[1].patterns[1],
                       &sink = readings[2].patterns[3];
  EXPECT_NEAR(induction.mass, m, 1e-6);
  EXPECT_NEAR(induction.selectivity / (odds * (kContext - 1)), 1, 1e-5);
  EXPECT_GT(induction.selectivity, kContext - 1);
  const double density = over_queries(plan, [&](double query) { return (1 - m) / query; });
  for (const PatternReading* reading : {&previous, &sink}) {
    EXPECT_NEAR(reading->mass, m, 1e-6);
    EXPECT_NEAR(reading->control_mass, density, 1e-7);
    EXPECT_NEAR(reading->selectivity * density / m, 1, 1e-5);
  }
  // What the thresholds' span stands for.
  EXPECT_NEAR(previous.selectivity / (odds * static_cast<double>(plan.queries.span - 1)), 1, .02);
}

TEST(ProbeReadings, AHeadWithAllItsMassOnTheTargetReadsTheCeiling) {
  const auto [batch, plan] = make_probe();
  auto readings = blank();
  read_probe_attention(capture_of(plan, induction_bias(batch, 200)), plan, readings);
  EXPECT_NEAR(readings[1].patterns[0].mass, 1, 1e-6);
  EXPECT_NEAR(readings[1].patterns[0].selectivity, 1e8, 1e3);
}

TEST(ProbeReadings, ANanHeadIsMarkedAndTheOthersKeepTheirFigures) {
  const auto [batch, plan] = make_probe();
  at::Tensor bias = induction_bias(batch, 1.0);
  bias[5][2][kContext - 1][3] = std::numeric_limits<float>::quiet_NaN();
  auto readings = blank();
  read_probe_attention(capture_of(plan, bias), plan, readings);
  EXPECT_FALSE(readings[2].finite);
  EXPECT_TRUE(std::isnan(readings[2].patterns[0].selectivity));
  EXPECT_TRUE(readings[1].finite);
  EXPECT_NEAR(readings[1].patterns[0].margin, 1.0, 1e-5);
}

TEST(ProbeReadings, WhatALayerCannotSeeIsNotMeasuredThere) {
  const auto [batch, plan] = make_probe();
  auto readings = blank();
  // Pairs lie in [5, 32): the last 16 keys hold no planted target, but the fixed ones and controls.
  read_probe_attention(windowed(plan, induction_bias(batch, 0), 16), plan, readings);
  for (const size_t p : {0u, 2u, 3u}) EXPECT_TRUE(std::isnan(readings[0].patterns[p].selectivity));
  for (const size_t p : {1u, 4u, 5u}) {
    EXPECT_NEAR(readings[0].patterns[p].selectivity, 1.0, 1e-5) << "uniform attention";
    EXPECT_NEAR(readings[0].patterns[p].margin, 0.0, 1e-5);
  }
  // Six keys: no control is left.
  readings = blank();
  read_probe_attention(windowed(plan, induction_bias(batch, 0), 6), plan, readings);
  EXPECT_TRUE(std::isnan(readings[0].patterns[1].selectivity));
  EXPECT_NEAR(readings[0].patterns[1].mass, 1.0 / 6, 1e-6);
  EXPECT_TRUE(readings[0].finite);
}

TEST(ProbeReadings, ControlsOfEveryKindCountSeenKeysOnly) {
  for (const ControlPositions controls :
       {ControlPositions::kMeasuredAll, ControlPositions::kReference50}) {
    const auto [batch, plan] = make_probe(controls);
    auto readings = blank();
    read_probe_attention(windowed(plan, induction_bias(batch, 0), 20), plan, readings);
    EXPECT_NEAR(readings[0].patterns[1].selectivity, 1.0, 1e-5) << to_string(controls);
  }
  const auto [batch, plan] = make_probe(ControlPositions::kAnalytic);
  auto readings = blank();
  read_probe_attention(windowed(plan, induction_bias(batch, 0), 20), plan, readings);
  const auto density = [](double query) { return 1 / std::min(query, 19.); };
  EXPECT_NEAR(readings[0].patterns[1].control_mass, over_queries(plan, density), 1e-9);
}

TEST(ProbeReadings, ASinksShareIsNoControl) {
  const auto [batch, plan] = make_probe(ControlPositions::kMeasuredAll);
  const at::Tensor sinks = at::full({kHeads}, 3.0, at::kDouble);
  LayerCapture layer = capture_of(plan, induction_bias(batch, 0), {.sinks = sinks});
  layer.sinks = sinks;
  auto readings = blank();
  read_probe_attention(layer, plan, readings);
  for (const auto& pattern : readings[0].patterns) EXPECT_NEAR(pattern.selectivity, 1.0, 1e-4);
}

Capture of_layers(const std::vector<LayerCapture>& layers) {
  Capture capture;
  for (size_t i = 0; i < layers.size(); ++i) capture.layers[static_cast<int64_t>(i)] = layers[i];
  return capture;
}

LayerCapture of_spectrum(const SpectrumCapture& spectrum, const SpectrumCapture& null = {}) {
  LayerCapture layer;
  layer.spectrum = spectrum;
  layer.null_spectrum = null;
  return layer;
}

/// Both participation ratios of one head's outputs [B, H, T, D], from their singular values.
struct DirectRatios {
  double entropic, quadratic;
  at::Tensor variances;  // [D], falling

  DirectRatios(const at::Tensor& z, int64_t head, bool is_centred) {
    at::Tensor x = z.select(1, head).reshape({-1, z.size(3)}).to(at::kDouble);
    if (is_centred) x = x - x.mean(0, /*keepdim=*/true);
    variances = at::linalg_svdvals(x).square() / x.size(0);
    const at::Tensor p = variances / variances.sum();
    entropic = std::exp(-(p * p.log()).sum().item<double>());
    quadratic = 1 / p.square().sum().item<double>();
  }
};

// Heads by the largest mean of a column in standard deviations: bf16 on the CPU goes about zero up
// to one of them. Padding counts for nothing, and everything else has a shift.
TEST(SpectrumCapture, GoesAboutZeroWhereThatLosesNothing) {
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const bool is_padded : {false, true}) {
      at::Tensor z = at::randn({8, 4, 64, 16}, at::detail::createCPUGenerator(5));
      for (int64_t h = 1; h < 4; ++h)
        z.select(1, h).select(2, 3 * h).add_(h == 1 ? 0.6 : h == 2 ? -1.5 : 50);
      z = z.to(type);
      std::optional<at::Tensor> keep;
      if (is_padded) {
        keep = at::ones({8, 64}, at::kBool);
        keep->slice(1, 40).zero_();
        z.slice(2, 40).fill_(std::numeric_limits<double>::quiet_NaN());
      }
      SpectrumCapture spectrum;
      capture_spectrum(spectrum, z, keep);
      const at::Tensor is_zero = (spectrum.shift == 0).all(1);
      for (int64_t h = 0; h < 4; ++h) {
        EXPECT_EQ(is_zero[h].item<bool>(), type == at::kBFloat16 && h < 2) << type << ", " << h;
        const at::Tensor kept = is_padded ? z.slice(2, 0, 40) : z;
        const DirectRatios uncentred(kept, h, false), centred(kept, h, true);
        std::vector<HeadReading> readings(4);
        read_spectra(of_layers({of_spectrum(spectrum)}), readings);
        const HeadReading& reading = readings[static_cast<size_t>(h)];
        EXPECT_NEAR(reading.participation_ratio / uncentred.entropic, 1, 1e-6);
        EXPECT_NEAR(reading.participation_ratio_centred / centred.entropic, 1, 1e-6);
      }
    }
  }
}

TEST(SpectrumReadings, MatchDirectMoments) {
  const at::Tensor z = at::randn({5, kHeads, 7, 4}, at::detail::createCPUGenerator(3)) + 2.0;
  const at::Tensor random = at::randn({3, kHeads, 7, 4}, at::detail::createCPUGenerator(4)) - 1.0;
  SpectrumCapture spectrum, null;
  capture_spectrum(spectrum, z.narrow(0, 0, 2), {});
  capture_spectrum(spectrum, z.narrow(0, 2, 3), {});
  capture_spectrum(null, random, {});
  auto readings = blank(), alone = blank();
  EXPECT_EQ(read_spectra(of_layers({of_spectrum(spectrum, null)}), readings).at(0).most, 4.0);
  EXPECT_EQ(read_spectra(of_layers({of_spectrum(spectrum)}), alone).at(0).most, 4.0);
  for (int64_t h = 0; h < kHeads; ++h) {
    const DirectRatios own(z, h, false), centred(z, h, true), of_null(random, h, false);
    const HeadReading& reading = readings[static_cast<size_t>(h)];
    EXPECT_EQ(reading.samples, 35);
    ASSERT_EQ(reading.eigenvalues.size(), 4u);
    for (int64_t i = 0; i < 4; ++i) {
      EXPECT_NEAR(reading.eigenvalues[static_cast<size_t>(i)], own.variances[i].item<double>(),
                  1e-5);
    }
    EXPECT_NEAR(reading.output_norm, std::sqrt(own.variances.sum().item<double>()), 1e-5);
    EXPECT_NEAR(reading.participation_ratio, own.entropic, 1e-6);
    EXPECT_NEAR(reading.participation_ratio_quadratic, own.quadratic, 1e-6);
    EXPECT_NEAR(reading.participation_ratio_centred, centred.entropic, 1e-6);
    EXPECT_NEAR(reading.participation_ratio_quadratic_centred, centred.quadratic, 1e-6);
    EXPECT_NEAR(reading.null_participation_ratio, of_null.entropic, 1e-6);
    EXPECT_EQ(alone[static_cast<size_t>(h)].participation_ratio, reading.participation_ratio);
    EXPECT_TRUE(std::isnan(alone[static_cast<size_t>(h)].null_participation_ratio));
  }
}

// Layers of other widths, without a spectrum or a sample, with and without a null, and more of them
// than are solved together: each reads as it does alone.
TEST(SpectrumReadings, DoNotDependOnTheLayersBeside) {
  struct Shape {
    int64_t batch, heads, tokens, width;
    bool has_null;
  };
  const std::vector<Shape> shapes = {
      {2, 3, 9, 8, false},  {2, 2, 9, 8, true},   {0, 0, 0, 0, false},  {1, 2, 1, 5, false},
      {1, 8, 3, 256, true}, {1, 8, 2, 256, true}, {1, 8, 4, 256, true}, {1, 4, 5, 256, false}};
  std::vector<LayerCapture> layers;
  for (const Shape& shape : shapes) {
    const auto random = [&](uint64_t seed) {
      return at::randn({shape.batch, shape.heads, shape.tokens, shape.width},
                       at::detail::createCPUGenerator(seed + layers.size()));
    };
    SpectrumCapture spectrum, null;
    capture_spectrum(spectrum, random(1), {});
    if (shape.has_null) capture_spectrum(null, random(100), {});
    layers.push_back(of_spectrum(spectrum, null));
  }
  SpectrumCapture masked;  // of padding alone
  capture_spectrum(masked, at::randn({1, 2, 3, 256}), at::zeros({1, 3}, at::kBool));
  layers.push_back(of_spectrum(masked));
  size_t heads = 0;
  for (const LayerCapture& layer : layers)
    heads += layer.spectrum.empty() ? 0 : static_cast<size_t>(layer.spectrum.gram.size(0));
  std::vector<HeadReading> together(heads), alone(heads);
  const Capture capture = of_layers(layers);
  const auto read = read_spectra(capture, together);
  ASSERT_EQ(read.size(), layers.size() - 1);
  size_t first = 0, next = 0;
  for (const LayerCapture& layer : layers) {
    if (layer.spectrum.empty()) continue;
    const auto count = static_cast<size_t>(layer.spectrum.gram.size(0));
    const double most =
        read_spectra(of_layers({layer}), std::span(alone).subspan(first, count)).at(0).most;
    EXPECT_EQ(read[next].heads.data(), together.data() + first);
    EXPECT_TRUE(read[next].most == most || std::isnan(most)) << next;
    first += count;
    ++next;
  }
  EXPECT_TRUE(std::isnan(read.back().most));
  const auto equal = [](double x, double y) { return x == y || (std::isnan(x) && std::isnan(y)); };
  for (size_t h = 0; h < heads; ++h) {
    EXPECT_EQ(together[h].samples, alone[h].samples);
    EXPECT_EQ(together[h].eigenvalues, alone[h].eigenvalues) << h;
    for (const auto figure :
         {&HeadReading::participation_ratio, &HeadReading::participation_ratio_quadratic,
          &HeadReading::participation_ratio_centred,
          &HeadReading::participation_ratio_quadratic_centred,
          &HeadReading::null_participation_ratio, &HeadReading::output_norm})
      EXPECT_TRUE(equal(together[h].*figure, alone[h].*figure)) << h;
    EXPECT_EQ(std::isfinite(together[h].participation_ratio), h < heads - 2);
  }
}

TEST(TrainPlans, AreSharedByTheLayersThatSeeTheSame) {
  Capture capture;
  const auto patterns = standard_patterns();
  const auto plan = [&](const AttentionCall& call, int64_t tokens = 30, size_t micro = 0) {
    return plan_for(capture, micro, 4, at::zeros({2, 1, tokens, 3}), call, {}, patterns, 16, 9);
  };
  at::Tensor keep = at::ones({2, 30}, at::kBool);
  keep.narrow(1, 0, 12).fill_(false);
  EXPECT_EQ(plan({}), 0u);
  EXPECT_EQ(plan({.window = 9}), 1u);
  EXPECT_EQ(plan({.bias = at::ones({30, 30}, at::kBool).tril(), .is_causal = false}), 0u);
  EXPECT_EQ(plan({.bias = at::ones({30, 30}, at::kBool).triu(-8)}), 1u);  // the window as a mask
  EXPECT_EQ(plan({.documents = at::zeros({2, 30}, at::kLong), .sinks = at::zeros({1})}), 0u);
  EXPECT_EQ(plan({.keep = keep}), 2u);
  EXPECT_EQ(plan({}, 30, 1), 3u);
  ASSERT_EQ(capture.micro_batches.size(), 2u);
  EXPECT_EQ(capture.micro_batches[0].plans, (std::vector<size_t>{0, 1, 2}));
  EXPECT_EQ(capture.micro_batches[1].plans, (std::vector<size_t>{3}));
  EXPECT_TRUE(capture.plans[1].rows.equal(capture.plans[0].rows));
  const at::Tensor rows = capture.plans[0].rows;
  EXPECT_TRUE(capture.plans[2].rows.equal(rows.masked_fill(rows.lt(12), -1)));
  EXPECT_THROW(plan({}, 31), c10::Error);  // other tokens in the same micro-batch
}

TEST(TrainReadings, NaturalInductionIsTheExcessOverLagMatchedKeys) {
  const int64_t batch = 2, tokens = 40;
  at::Tensor ids = at::arange(100, 140, at::kLong).repeat({batch, 1});
  for (const int64_t t : {2, 20, 36, 39}) ids.select(1, t).fill_(5);
  LayerCapture layer;
  std::vector<TrainPlan> plans{plan_train(batch, tokens, ids, standard_patterns(), 16, 3)};
  // From every query head 0 scores what follows an earlier 5 by log 3 above all else.
  at::Tensor bias = at::zeros({1, kHeads, tokens, tokens});
  for (const int64_t t : {3, 21}) bias.select(1, 0).select(2, t).fill_(std::log(3.0));
  const at::Tensor zero = at::zeros({batch, kHeads, tokens, 2});
  layer.attention.push_back(attention_mass(zero, zero, plans[0].rows, plans[0].targets,
                                           plans[0].offsets, plans[0].groups, {.bias = bias}));
  layer.plan_of.push_back(0);
  auto readings = blank();
  read_train_attention(layer, plans, standard_patterns(), readings);
  if (std::isnan(readings[0].patterns[0].margin)) GTEST_FAIL() << "no query hit a repeated token";
  EXPECT_NEAR(readings[0].patterns[0].margin, std::log(3.0), 1e-5);
  EXPECT_NEAR(readings[0].patterns[0].selectivity, 3.0, 1e-4);
  EXPECT_NEAR(readings[1].patterns[0].mass, 0.0, 1e-7);
  EXPECT_NEAR(readings[1].patterns[0].selectivity, 1.0, 1e-5);
}

}  // namespace
}  // namespace headscope
