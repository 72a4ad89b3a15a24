#include "csrc/monitor/analysis/state_codec.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

namespace headscope {
namespace {

AnalysisState sample_state() {
  AnalysisState state;
  state.segment = 3;
  state.integral_axis = "ln_tokens";
  state.trajectories[{1, 2}] = {{5, 0.1, 1.0 / 3}, {6, kNaN, 2}};
  state.tracker = std::string("\0\xff bytes", 8);
  Event event;
  event.step = 7;
  event.kind = "emerging";
  event.heads = {{0, 3}};
  event.figures = {{"margin_z", 4.25}, {"mass", kNaN}};
  state.events = {event};
  AblationReport report;
  report.pattern = "induction";
  report.control_sets = {{{1, 0}}, {{1, 5}}};
  report.verdict = CircuitState::kVerified;
  state.pending_ablations = {report};
  state.calibrations.pending = {{.step = 7, .pattern = "induction", .p99 = 2.5}};
  state.calibrations.recall_thresholds = {{"induction", 1.0 / 3}};
  HeadReading reading;
  reading.id = {1, 2};
  reading.patterns.resize(2);
  reading.patterns[1].selectivity = 1e308;
  reading.finite = false;
  state.last_probe_heads = {reading};
  return state;
}

TEST(StateCodec, RoundTripsBitForBit) {
  const std::string bytes = encode(sample_state());
  const AnalysisState state = decode(bytes);
  EXPECT_EQ(encode(state), bytes);
  EXPECT_EQ(state.segment, 3);
  EXPECT_EQ(state.tracker, sample_state().tracker);
  EXPECT_EQ(std::bit_cast<uint64_t>(state.trajectories.at({1, 2})[0].participation_ratio),
            std::bit_cast<uint64_t>(1.0 / 3));
  EXPECT_TRUE(std::isnan(state.trajectories.at({1, 2})[1].tokens));
  EXPECT_TRUE(std::isnan(state.events.at(0).figures.at("mass")));
  EXPECT_EQ(state.pending_ablations.at(0).verdict, CircuitState::kVerified);
  EXPECT_EQ(state.calibrations.pending.at(0).p99, 2.5);
  EXPECT_EQ(state.calibrations.recall_thresholds.at("induction"), 1.0 / 3);
  EXPECT_EQ(state.last_probe_heads.at(0).patterns.at(1).selectivity, 1e308);
}

TEST(StateCodec, ReadsAStateFromBeforeAFigure) {
  AnalysisState state = sample_state();
  constexpr auto kFigures = by_slot(kHeadFigures);
  state.last_probe_heads[0].*kFigures.front().member = 2;
  state.last_probe_heads[0].*kFigures.back().member = 3;
  auto json = nlohmann::json::from_cbor(encode(state));
  auto& figures = json["last_probe_heads"][0]["figures"];
  figures.erase(figures.size() - 1);
  const std::vector<uint8_t> bytes = nlohmann::json::to_cbor(json);
  const HeadReading read = decode({bytes.begin(), bytes.end()}).last_probe_heads.at(0);
  EXPECT_EQ(read.*kFigures.front().member, 2);
  EXPECT_TRUE(std::isnan(read.*kFigures.back().member));
}

TEST(StateCodec, RefusesOtherBytes) {
  EXPECT_THROW(decode(""), std::runtime_error);
  EXPECT_THROW(decode("not a state"), std::runtime_error);
  std::string cut = encode(sample_state());
  cut.resize(cut.size() / 2);
  EXPECT_THROW(decode(cut), std::runtime_error);
}

}  // namespace
}  // namespace headscope
