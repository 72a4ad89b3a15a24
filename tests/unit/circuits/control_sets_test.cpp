#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <stdexcept>

#include "headscope/ablation.h"
#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Heads = std::vector<HeadId>;

/// Layers and heads of a published spec, in its order.
Heads heads_of(const nlohmann::ordered_json& spec) {
  Heads heads;
  for (const auto& [layer, list] : spec.items())
    for (const auto& head : list) heads.push_back({std::stoi(layer), head.get<int32_t>()});
  return heads;
}

const nlohmann::ordered_json& spec_named(const nlohmann::ordered_json& results,
                                         const std::string& name) {
  for (const auto& result : results)
    if (result.value("name", result.value("condition", "")).find(name) != std::string::npos)
      return result.at("spec");
  throw std::invalid_argument(name);
}

TEST(MatchedRandomReference, RepeatsTheSweepWithOneGeneratorForAllThresholds) {
  const auto golden = test::pythia1b();
  const auto& results = golden.at("ablation_threshold_sweep").at("results");
  RandomState random(123);
  for (const std::string threshold : {"2x", "10x", "30x", "50x"}) {
    const auto picked = heads_of(spec_named(results, "screen_>=" + threshold));
    EXPECT_EQ(matched_random_reference(picked, 8, random),
              heads_of(spec_named(results, "matched_random_>=" + threshold)))
        << threshold;
  }
}

TEST(MatchedRandomReference, AFreshGeneratorGivesAnotherSetAtFifty) {
  RandomState random(123);
  EXPECT_THAT(matched_random_reference(Heads{{4, 4}, {7, 0}, {7, 1}}, 8, random),
              ElementsAre(HeadId{4, 1}, HeadId{7, 2}, HeadId{7, 6}));
}

TEST(MatchedRandomReference, KeepsTheOrderOfLayersAndFallsShortOfFullOnes) {
  const auto golden = test::pythia1b();
  const auto& results = golden.at("ablation_k45").at("results");
  RandomState random(123);
  EXPECT_EQ(matched_random_reference(heads_of(spec_named(results, "top45")), 8, random),
            heads_of(spec_named(results, "matched_random")));
}

TEST(MatchedRandomReference, RepeatsThePreviousTokenSetAndAnotherSeed) {
  const auto golden = test::pythia1b();
  const auto& results = golden.at("prev_token_circuit").at("results");
  RandomState random(123);
  EXPECT_EQ(
      matched_random_reference(heads_of(spec_named(results, "prev_token_circuit")), 8, random),
      heads_of(spec_named(results, "matched_random")));
  RandomState one(1);
  const auto& sweep = golden.at("ablation_threshold_sweep").at("results");
  EXPECT_EQ(matched_random_reference(heads_of(spec_named(sweep, "screen_>=10x")), 8, one),
            heads_of(golden.at("matched_random_seed_sweep").at("fresh_seed_spec_1")));
}

TEST(MatchedRandomReference, RefusesAHeadThatDoesNotExist) {
  RandomState random(123);
  EXPECT_THROW(matched_random_reference(Heads{{0, 8}}, 8, random), std::invalid_argument);
}

/// `layers` x `per_layer` heads of selectivity 1 and output norm 1 + head.
std::vector<HeadReading> model(int32_t layers, int32_t per_layer) {
  std::vector<HeadReading> heads;
  for (int32_t layer = 0; layer < layers; ++layer)
    for (int32_t head = 0; head < per_layer; ++head) {
      HeadReading reading;
      reading.id = {layer, head};
      reading.output_norm = 1. + head;
      reading.patterns = {{.selectivity = 1}};
      heads.push_back(reading);
    }
  return heads;
}

void set_selectivity(std::vector<HeadReading>& heads, HeadId id, double selectivity) {
  for (auto& head : heads)
    if (head.id == id) head.patterns[0].selectivity = selectivity;
}

TEST(DrawControlSets, AreDistinctOfEqualSizePerLayerAndNeverPicked) {
  const Heads picked = {{0, 1}, {0, 2}, {1, 5}};
  const auto controls = draw_control_sets(picked, model(2, 12), 0, {.wanted = 19});
  EXPECT_EQ(controls.sets.size(), 19u);
  EXPECT_FALSE(controls.all_that_exist || controls.relaxed || controls.short_layers);
  EXPECT_EQ(std::set<Heads>(controls.sets.begin(), controls.sets.end()).size(), 19u);
  for (const auto& set : controls.sets) {
    EXPECT_TRUE(std::is_sorted(set.begin(), set.end()));
    EXPECT_EQ(std::count_if(set.begin(), set.end(), [](HeadId id) { return id.layer == 0; }), 2);
    EXPECT_EQ(set.size(), 3u);
    for (const HeadId id : picked) EXPECT_EQ(std::count(set.begin(), set.end(), id), 0);
  }
}

TEST(DrawControlSets, UseAllThatExistWhenFewDo) {
  const auto controls = draw_control_sets(Heads{{1, 0}, {1, 1}}, model(2, 5), 0, {});
  EXPECT_THAT(controls.sets,
              ElementsAre(Heads{{1, 2}, {1, 3}}, Heads{{1, 2}, {1, 4}}, Heads{{1, 3}, {1, 4}}));
  EXPECT_TRUE(controls.all_that_exist);
}

TEST(DrawControlSets, KeepOutHeadsAtTheRecallThreshold) {
  auto heads = model(1, 5);
  set_selectivity(heads, {0, 4}, 2);
  const auto controls = draw_control_sets(Heads{{0, 0}}, heads, 0, {});
  EXPECT_THAT(controls.sets, ElementsAre(Heads{{0, 1}}, Heads{{0, 2}}, Heads{{0, 3}}));
  EXPECT_FALSE(controls.relaxed);
}

TEST(DrawControlSets, FallBackOnTheLeastSelectiveOthers) {
  auto heads = model(1, 5);
  set_selectivity(heads, {0, 2}, 9);
  set_selectivity(heads, {0, 3}, 5);
  const auto controls = draw_control_sets(Heads{{0, 0}, {0, 4}}, heads, 0, {});
  EXPECT_THAT(controls.sets, ElementsAre(Heads{{0, 1}, {0, 3}}));
  EXPECT_TRUE(controls.relaxed);
}

TEST(DrawControlSets, TakeAHeadWithoutSelectivityLast) {
  auto heads = model(1, 4);
  for (int32_t head = 1; head < 4; ++head) set_selectivity(heads, {0, head}, 10. - head);
  set_selectivity(heads, {0, 3}, kNaN);
  EXPECT_THAT(draw_control_sets(Heads{{0, 0}}, heads, 0, {}).sets, ElementsAre(Heads{{0, 2}}));
}

TEST(DrawControlSets, AreSmallerWhereALayerIsAlmostFull) {
  const auto controls = draw_control_sets(Heads{{0, 0}, {0, 1}, {0, 2}}, model(1, 4), 0, {});
  EXPECT_THAT(controls.sets, ElementsAre(Heads{{0, 3}}));
  EXPECT_TRUE(controls.short_layers && controls.all_that_exist);
}

TEST(DrawControlSets, AreEmptyWhenEveryHeadIsPicked) {
  const auto controls = draw_control_sets(Heads{{0, 0}, {0, 1}}, model(1, 2), 0, {});
  EXPECT_THAT(controls.sets, IsEmpty());
}

TEST(DrawControlSets, MatchTheOutputNormWhereThereIsAChoice) {
  // 40 single heads with norms 1..40; the picked one has 40, so the nearest 19 are 21..39.
  const auto controls = draw_control_sets(Heads{{0, 39}}, model(1, 40), 0, {.wanted = 19});
  ASSERT_EQ(controls.sets.size(), 19u);
  EXPECT_THAT(controls.sets.front(), ElementsAre(HeadId{0, 20}));
  EXPECT_THAT(controls.sets.back(), ElementsAre(HeadId{0, 38}));
}

TEST(DrawControlSets, AreAFunctionOfTheSeed) {
  const Heads picked = {{0, 0}, {0, 1}, {0, 2}};
  const auto draw = [&](uint32_t seed) {
    return draw_control_sets(picked, model(1, 24), 0, {.seed = seed}).sets;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(DrawControlSets, NameAHeadThatIsPickedWrongly) {
  const auto refusal = [](Heads picked) -> std::string {
    try {
      draw_control_sets(picked, model(1, 4), 0, {});
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(refusal({{3, 1}}), HasSubstr("head 3.1 has no reading"));
  EXPECT_THAT(refusal({{0, 1}, {0, 1}}), HasSubstr("head 0.1 is picked twice"));
}

}  // namespace
}  // namespace headscope
