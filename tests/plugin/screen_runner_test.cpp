#include "headscope/screen_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "plugin/examples/screen_heads/model.h"
#include "tests/support/errors.h"
#include "tests/support/models/tiny_model.h"

namespace headscope {
namespace {

using testing::Attached;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;
using testing::RecordingSink;
using testing::TinyModel;

/// The example's model, whose heads 0 .. 7 follow the standard patterns, name-mover, s-inhibition.
struct Screened {
  prompts::Model model;
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();
  std::unique_ptr<Monitor> monitor;

  explicit Screened(std::vector<Pattern> patterns = prompts::all_patterns(),
                    ProbeOptions probe = {.vocab_size = prompts::kVocab,
                                          .context = prompts::kContext,
                                          .examples = 64})
      : model(std::move(patterns)) {
    Options options;
    options.measure = false;
    options.log = [](LogLevel, const std::string&) {};
    monitor = std::make_unique<Monitor>(options, std::vector<std::shared_ptr<Sink>>{sink});
    model.monitor = monitor.get();
    monitor->set_probe(ProbeHost{[this](const at::Tensor& t) { return model.forward(t); }, {}},
                       probe);
  }
  ScreenResult screen(const ScreenRequest& request) const { return monitor->screen(request); }
  std::string refusal(const ScreenRequest& request) const {
    return error_of<std::invalid_argument>([&] { monitor->screen(request); });
  }
};

ScreenRequest of(ScreenBatch batch) {
  ScreenRequest request;
  request.batch = batch;
  request.null_draws = 20;
  return request;
}

std::vector<ScreenPattern> on_prompts() {
  const auto batch = indirect_object_batch(prompts::indirect_object());
  std::vector<ScreenPattern> own;
  for (auto& pattern : indirect_object_patterns(prompts::kNames)) {
    pattern.formed_at_256 = 100;
    own.push_back({pattern, batch.tokens, batch.query, batch.indirect_object, {}});
  }
  return own;
}

const ScreenedPattern& line(const ScreenResult& result, const std::string& pattern) {
  for (const ScreenedPattern& own : result.patterns)
    if (own.pattern == pattern) return own;
  throw std::invalid_argument(pattern);
}

// Sharpness 8: a share e^8 / (e^8 + keys beside) on a single target, the rest shared evenly.
TEST(Screens, ReadHandMadeHeadsByTheFormula) {
  Screened screened;
  ScreenRequest request = of(ScreenBatch::kPlanted);
  request.query_positions = 1;
  const ScreenResult result = screened.screen(request);
  ASSERT_EQ(result.heads.size(), 24u);
  EXPECT_EQ(result.context, prompts::kContext);
  const double beside = prompts::kContext - 1, mass = std::exp(8.) / (std::exp(8.) + beside);
  const std::vector<std::pair<size_t, size_t>> single = {{1, 1}, {3, 3}, {4, 4}};
  for (const auto& [head, pattern] : single) {
    const PatternReading& own = result.heads[head].patterns[pattern];
    EXPECT_NEAR(own.mass, mass, 1e-6) << head;
    EXPECT_NEAR(own.selectivity / std::exp(8.), 1, 1e-4) << head;
  }
  // Planted pairs of so few tokens may stand twice; every target then has its share.
  EXPECT_NEAR(result.heads[0].patterns[0].selectivity / std::exp(8.), 1, .05);
  for (size_t p = 0; p < 6; ++p) {
    EXPECT_NEAR(result.heads[20].patterns[p].selectivity, 1, 1e-5) << "a uniform head, " << p;
    EXPECT_THAT(line(result, result.patterns[p].pattern).members, ElementsAre(HeadId{0, int(p)}));
  }
  EXPECT_EQ(result.heads[20].best_pattern, "unclassified");
  EXPECT_EQ(result.heads[1].best_pattern, "previous-token");
  EXPECT_NEAR(result.heads[3].sink_mass, mass, 1e-6);
}

TEST(Screens, AskAtSeveralQueryPositions) {
  Screened screened(testing::pinned_patterns());
  const ScreenResult result = screened.screen(of(ScreenBatch::kPlanted));
  EXPECT_LT(result.context, prompts::kContext);
  EXPECT_GT(result.context, prompts::kContext / 2);
  for (size_t p = 0; p < 6; ++p)
    EXPECT_THAT(result.patterns[p].members, ElementsAre(HeadId{0, int(p)})) << p;
  EXPECT_NEAR(result.heads[20].patterns[5].selectivity, 1, 1e-5);
  ASSERT_TRUE(result.over_positions);
  EXPECT_EQ(result.over_positions->labelings, 4);
  EXPECT_EQ(result.over_positions->pairwise, 1);
  EXPECT_FALSE(result.over_batches);
}

/// A head that follows position 47 is a previous token from the last query alone.
TEST(Screens, TellAFixedPositionFromThePreviousToken) {
  Screened screened(testing::pinned_patterns());
  screened.model.patterns[1].targets = [](std::span<const int64_t>, int64_t query) {
    return query >= 46 ? std::vector<int64_t>{46} : std::vector<int64_t>{};
  };
  ScreenRequest request = of(ScreenBatch::kPlanted);
  request.query_positions = 1;
  EXPECT_EQ(line(screened.screen(request), "previous-token").members.size(), 1u);
  request.query_positions = 4;
  const ScreenResult result = screened.screen(request);
  EXPECT_TRUE(line(result, "previous-token").members.empty());
  ASSERT_TRUE(result.over_positions);
  EXPECT_NEAR(result.over_positions->unanimous, 23 / 24., 1e-9) << "this head alone changes";
}

TEST(Screens, RunEveryBatch) {
  Screened screened(prompts::all_patterns(),
                    {.vocab_size = prompts::kVocab, .context = 48, .examples = 32});
  ScreenRequest request = of(ScreenBatch::kPlanted);
  request.prompts = prompts::indirect_object(32);
  request.natural = {.lowest_token = 0, .filler = 4, .first_position = 0};
  request.stream.resize(48 * 40);
  for (size_t i = 0; i < request.stream.size(); ++i)
    request.stream[i] = static_cast<int64_t>((i / 48 + i % 48 % 20 * 3) % 90);  // period 20
  for (int number = 0; number < 8; ++number) {
    request.batch = static_cast<ScreenBatch>(number);
    const ScreenResult result = screened.screen(request);
    const std::string name = to_string(request.batch);
    EXPECT_EQ(result.batch, name);
    EXPECT_EQ(screen_batch_from_string(name), request.batch);
    EXPECT_GT(line(result, "previous-token").rows, 0) << name;
    EXPECT_GT(result.heads[1].patterns[1].selectivity, 100) << name;
    for (const PatternReading& own : result.heads[20].patterns)
      if (!std::isnan(own.selectivity)) {
        EXPECT_NEAR(own.selectivity, 1, 1e-4) << name;
      }
    const bool content =
        request.batch != ScreenBatch::kIndirectObject && request.batch != ScreenBatch::kRandom;
    if (content) {
      EXPECT_THAT(line(result, "induction").members, Contains(HeadId{0, 0})) << name;
      EXPECT_GT(result.ratio.samples, 0) << name;
    }
  }
  request.batch = ScreenBatch::kIndirectObject;
  EXPECT_THAT(line(screened.screen(request), "name-mover").members, ElementsAre(HeadId{0, 6}));
}

TEST(Screens, CompareClassesOverBatches) {
  Screened screened(testing::pinned_patterns());
  ScreenRequest request = of(ScreenBatch::kPlanted);
  request.compared = {ScreenBatch::kPlanted, ScreenBatch::kDuplicateToken};
  auto stability = screened.screen(request).over_batches;
  ASSERT_TRUE(stability);
  EXPECT_EQ(stability->labelings, 3);
  EXPECT_EQ(stability->unanimous, 1);
  // A head that copies from one token only has its class where that token is asked.
  screened.model.patterns[0].targets = [whole = standard_patterns()[0].targets](
                                           std::span<const int64_t> tokens, int64_t query) {
    return query + 1 == 48 ? whole(tokens, query) : std::vector<int64_t>{};
  };
  request.query_positions = 1;
  stability = screened.screen(request).over_batches;
  EXPECT_NEAR(stability->unanimous, 23 / 24., 1e-9);
}

TEST(Screens, CalibrateBothNullsAndKeepThemWithTheRun) {
  Screened screened;
  const ScreenResult result = screened.screen(of(ScreenBatch::kPlanted));
  const ScreenedPattern& induction = line(result, "induction");
  ASSERT_TRUE(induction.permuted && induction.uniform);
  EXPECT_EQ(induction.permuted->heads.size(), 24u);
  EXPECT_NEAR(induction.permuted->heads[20].null.max, 1, 1e-4) << "a uniform head";
  EXPECT_EQ(induction.recall_threshold, induction.permuted->recall_threshold);
  EXPECT_EQ(induction.permuted->recall_threshold, std::max(2., induction.permuted->pooled.p99));
  EXPECT_FALSE(line(result, "first-token").permuted) << "its targets are the same in every row";
  EXPECT_TRUE(line(result, "first-token").uniform);
  for (const HeadId id : induction.above_recall)
    EXPECT_GE(result.heads[static_cast<size_t>(id.head)].patterns[0].selectivity,
              induction.recall_threshold);
  EXPECT_EQ(result.ratio.samples, 64);
  EXPECT_EQ(result.heads[0].samples, 64);

  const auto circuits = screened.monitor->report().circuits;
  EXPECT_EQ(circuits[0].recall_threshold, induction.recall_threshold);
  screened.monitor->close();
  ASSERT_EQ(screened.sink->snapshots.size(), 1u);
  const Snapshot& kept = *screened.sink->snapshots[0];
  EXPECT_EQ(kept.circuits[0].recall_threshold, induction.recall_threshold);
  int64_t permuted = 0, uniform = 0, ratio = 0;
  for (const NullCalibration& null : kept.calibrations) {
    permuted += null.null == "permuted";
    uniform += null.null == "uniform";
    ratio += null.pattern.empty() && null.null == "random_tokens" && null.rows == 64;
    if (null.pattern != "induction" || null.null != "permuted") continue;
    EXPECT_EQ(null.p99, induction.permuted->pooled.p99);
    EXPECT_EQ(null.draws, 20);
    EXPECT_EQ(null.heads_above, std::ssize(induction.above_recall));
  }
  EXPECT_EQ(permuted, 5);
  EXPECT_EQ(uniform, 6);
  EXPECT_EQ(ratio, 1);
}

TEST(Screens, OfOtherRowsLeaveTheStandingThreshold) {
  Screened screened;
  screened.screen(of(ScreenBatch::kHardNegative));
  EXPECT_TRUE(std::isnan(screened.monitor->report().circuits[0].recall_threshold));
  ScreenRequest reference = of(ScreenBatch::kPlanted);
  reference.recall_null = NullTargets::kUniform;
  const ScreenResult result = screened.screen(reference);
  EXPECT_EQ(screened.monitor->report().circuits[0].recall_threshold,
            line(result, "induction").uniform->recall_threshold);
}

TEST(Screens, OutliveTheirMonitorInItsState) {
  Screened screened;
  screened.screen(of(ScreenBatch::kPlanted));
  const double standing = screened.monitor->report().circuits[0].recall_threshold;
  Screened resumed;
  resumed.monitor->load_state_dict(screened.monitor->state_dict());
  EXPECT_EQ(resumed.monitor->report().circuits[0].recall_threshold, standing);
}

TEST(Screens, CompareOwnPatternsInOneTable) {
  Screened screened;
  ScreenRequest request = of(ScreenBatch::kPlanted);
  request.own_rows = on_prompts();
  request.own_rows[1].pattern.formed_at_256 = 1e7;  // a threshold of its own, that nothing reaches
  request.ablate = true;
  const ScreenResult result = screened.screen(request);
  ASSERT_EQ(result.patterns.size(), 8u);
  const ScreenedPattern &mover = line(result, "name-mover"),
                        &inhibition = line(result, "s-inhibition");
  EXPECT_EQ(mover.batch, "own");
  EXPECT_EQ(mover.context, 14);
  EXPECT_NEAR(mover.threshold, scaled_threshold(100, 14), 1e-9);
  EXPECT_THAT(mover.members, ElementsAre(HeadId{0, 6}));
  EXPECT_TRUE(inhibition.members.empty());
  EXPECT_EQ(inhibition.best, (HeadId{0, 7}));
  EXPECT_EQ(result.heads[6].patterns.size(), 8u);
  ASSERT_TRUE(mover.ablation);
  EXPECT_EQ(mover.ablation->verdict, CircuitState::kVerified) << mover.ablation->reason;
  EXPECT_EQ(mover.ablation->metric, "target_loss");
  EXPECT_FALSE(inhibition.ablation);
  EXPECT_EQ(line(result, "induction").ablation->metric, "repeated_loss");
  EXPECT_THAT(to_text(result), HasSubstr("name-mover       own"));
  EXPECT_THAT(to_text(result), HasSubstr("name-mover: verified"));
}

TEST(Screens, LeaveTheHostAndItsRunAlone) {
  TinyModel model(2);
  Attached attached(model);
  {
    auto scope = attached.monitor->begin_step({.step = 0, .tokens_seen = 0.});
    EXPECT_THAT(error_of<std::invalid_argument>([&] { attached.monitor->screen({}); }),
                HasSubstr("headscope screen: a step is open"));
  }
  const auto before = attached.monitor->report();
  model.dropout = .5;
  model.train();
  const ScreenResult result = attached.monitor->screen({});
  EXPECT_TRUE(model.is_training());
  EXPECT_EQ(result.heads.size(), 8u);
  EXPECT_GT(result.screen.top_k, 0) << "the probe's integrals rank the heads";
  EXPECT_EQ(attached.monitor->report().events.size(), before.events.size());
}

TEST(Screens, RefuseWithValueAndFix) {
  Screened screened;
  const auto refused = [&](const char* message, auto&& change) {
    ScreenRequest request = of(ScreenBatch::kPlanted);
    change(request);
    EXPECT_THAT(screened.refusal(request), HasSubstr(message));
  };
  refused("query_positions must be 1 .. 16, got 0", [](auto& r) { r.query_positions = 0; });
  refused("null_draws must be 1 or more, got 0", [](auto& r) { r.null_draws = 0; });
  refused("context must be 16 .. 48", [](auto& r) { r.context = 49; });
  refused("vocabulary is 0..95", [](auto& r) { r.token_high = 97; });
  refused("the stream has 0 tokens", [](auto& r) { r.batch = ScreenBatch::kText; });
  refused("'mine' of own_rows needs tokens [N, T]", [](auto& r) {
    r.own_rows.resize(1);
    r.own_rows[0].pattern = standard_patterns()[0];
    r.own_rows[0].pattern.name = "mine";
  });
  refused("is asked of the batch and of its own rows", [](auto& r) {
    r.own_rows = on_prompts();
    r.own_rows[0].pattern.name = "induction";
  });
  refused("have the id 96, and the vocabulary is 0..95", [](auto& r) {
    r.own_rows = on_prompts();
    r.own_rows[0].tokens = r.own_rows[0].tokens.clone();
    r.own_rows[0].tokens[0][0] = 96;
  });
  refused("has 3 queries for 64 rows", [](auto& r) {
    r.own_rows = on_prompts();
    r.own_rows[0].query = {1, 2, 3};
  });
  refused("have the id 200, and the vocabulary is 0..95", [](auto& r) {
    r.batch = ScreenBatch::kIndirectObject;
    r.prompts = prompts::indirect_object();
    r.prompts.objects = {200};
  });
  refused("kReference50 asks planted rows from the last token; set query_positions to 1",
          [](auto& r) { r.controls = ScreenControls::kReference50; });
  refused("kReference50 is defined on planted and natural", [](auto& r) {
    r.controls = ScreenControls::kReference50;
    r.batch = ScreenBatch::kText;
    r.stream.assign(480, 1);
  });
  EXPECT_THAT(error_of<std::invalid_argument>([] { screen_batch_from_string("planed"); }),
              HasSubstr("there is no batch 'planed'; there are planted, duplicate_token"));

  Screened small(prompts::all_patterns(), {.vocab_size = 40, .context = 48, .examples = 8});
  EXPECT_THAT(small.refusal(of(ScreenBatch::kHardNegative)),
              HasSubstr("48 different tokens, and there are 40 to draw from"));
}

TEST(Screens, SayWhichLayersAreMissing) {
  TinyModel model(2);
  Attached attached(model);
  model.monitor = nullptr;
  EXPECT_THAT(error_of<std::runtime_error>([&] { attached.monitor->screen({}); }),
              HasSubstr("no layer reported during forward"));
}

}  // namespace
}  // namespace headscope
