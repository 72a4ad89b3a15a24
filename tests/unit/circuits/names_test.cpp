#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "headscope/snapshot.h"

namespace headscope {
namespace {

TEST(CircuitStateNames, GoBothWays) {
  for (int i = 0; i < kCircuitStates; ++i) {
    const auto state = static_cast<CircuitState>(i);
    EXPECT_EQ(circuit_state_from_string(to_string(state)), state);
  }
  EXPECT_STREQ(to_string(CircuitState::kNotCausal), "not_causal");
}

TEST(CircuitStateNames, RefuseAnUnknownOneByName) {
  try {
    circuit_state_from_string("frozen");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'frozen'"));
  }
}

TEST(SourceNames, AreTrainAndProbe) {
  EXPECT_STREQ(to_string(Source::kTrain), "train");
  EXPECT_STREQ(to_string(Source::kProbe), "probe");
}

}  // namespace
}  // namespace headscope
