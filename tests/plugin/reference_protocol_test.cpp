#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "headscope/screen_runner.h"
#include "tests/support/errors.h"
#include "tests/unit/circuits/golden.h"

namespace headscope {
namespace {

using ::testing::ElementsAre;
using testing::error_of;
using ::testing::HasSubstr;

// One switch: everything below is read from it, and compared with what was published.
const ReferenceProtocol kReference = reference_protocol(50304);

TEST(ReferenceProtocol, DrawsThePublishedRows) {
  const auto digest = [](int64_t examples) {
    const ProbeOptions probe = resolved(kReference.probe);
    return induction_batch({.examples = examples,
                            .context = probe.context,
                            .token_low = probe.token_low,
                            .token_high = probe.token_high,
                            .seed = probe.seed,
                            .window = probe.window})
        .tokens.sum()
        .item<int64_t>();
  };
  EXPECT_EQ(digest(kReference.screen.examples), 2583650843);
  EXPECT_EQ(digest(kReference.probe.examples), 647669588);
}

/// A layer whose head 0 is an induction head and head 1 a previous-token head, both perfect. Sums
/// the tokens that it is run on, up to those of the published rows.
struct Perfect {
  std::unique_ptr<Monitor> monitor;
  int64_t tokens_seen = 0;

  Perfect() {
    Options options = kReference.options;
    options.measure = false;
    options.log = [](LogLevel, const std::string&) {};
    monitor = std::make_unique<Monitor>(options, std::vector<std::shared_ptr<Sink>>{});
    monitor->set_probe(ProbeHost{[this](const at::Tensor& tokens) { return forward(tokens); }, {}},
                       kReference.probe);
  }

  at::Tensor forward(const at::Tensor& tokens) {
    if (tokens_seen < 2583650843) tokens_seen += tokens.sum().item<int64_t>();
    const int64_t rows = tokens.size(0), context = tokens.size(1);
    at::Tensor bias = at::zeros({rows, 2, context, context});
    const at::Tensor same = tokens.unsqueeze(2).eq(tokens.unsqueeze(1)).tril(-2);  // [n, t, j]
    bias.select(1, 0).narrow(2, 1, context - 1).masked_fill_(same.narrow(2, 0, context - 1), 1000);
    bias.select(1, 1).diagonal(-1, 1, 2).fill_(1000);
    const at::Tensor z = at::zeros({rows, 2, context, 2});
    static_cast<void>(monitor->observe(0, z, z, z, z, {.bias = bias}));
    return {};
  }
};

TEST(ReferenceProtocol, ScreensPerfectHeadsAtThePublishedCeilings) {
  Perfect perfect;
  ScreenRequest request = kReference.screen;
  request.null_draws = 2;
  const ScreenResult result = perfect.monitor->screen(request);
  EXPECT_EQ(perfect.tokens_seen, 2583650843) << "the model ran the published rows";
  EXPECT_EQ(result.context, 256);
  // 420 of 2000 planted B lie among the 50 fixed controls.
  EXPECT_NEAR(result.heads[0].patterns[0].selectivity, 1 / (420 / 2000. / 50), 1e-3);
  EXPECT_NEAR(result.heads[1].patterns[1].selectivity, 1e8, 1e2);
  EXPECT_EQ(result.patterns[0].rows, 2000);
  EXPECT_THAT(result.screen.circuits[0].members, ElementsAre(HeadId{0, 0}));
  EXPECT_EQ(result.patterns[0].threshold, 50);
  EXPECT_EQ(result.patterns[0].recall_threshold, result.patterns[0].uniform->recall_threshold);
  EXPECT_EQ(result.ratio.samples, 2000);
  EXPECT_EQ(result.screen.rules.name, "reference");
}

TEST(ReferenceProtocol, FindsThePublishedCircuits) {
  const Screen screen = screen_heads(standard_patterns(), test::pythia1b_screen(), 256,
                                     kReference.screen.rules, kReference.screen.top_k);
  EXPECT_THAT(screen.circuits[0].members, ElementsAre(HeadId{4, 4}, HeadId{7, 0}, HeadId{7, 1}));
  EXPECT_EQ(screen.circuits[1].members.size(), 8u) << "at least 100x and best class";
  EXPECT_EQ(screen.top_k, 23);
}

TEST(ReferenceProtocol, HasThePublishedIntegrals) {
  const auto golden = test::pythia1b();
  ASSERT_EQ(golden.at("heads").size(), 7u);
  for (const auto& [name, head] : golden.at("heads").items()) {
    Trajectory trajectory(kReference.options.integral);
    for (size_t i = 0; i < 10; ++i)
      trajectory.add({golden.at("trajectory_steps")[i].get<int64_t>(),
                      golden.at("trajectory_tokens_B")[i].get<double>() * 1e9,
                      head.at("pr")[i].get<double>()});
    EXPECT_PRED3(test::close, trajectory.integral(),
                 head.at("features").at("integral").get<double>(), 1e-9)
        << name;
  }
}

TEST(ReferenceProtocol, RefusesASmallerVocabulary) {
  EXPECT_THAT(error_of<std::invalid_argument>([] { reference_protocol(9999); }),
              HasSubstr("draws tokens of [100, 10000), and the vocabulary has 9999"));
  EXPECT_THAT(error_of<std::invalid_argument>([] { reference_protocol(50304, 15); }),
              HasSubstr("at least 16 are needed, got 15"));
}

}  // namespace
}  // namespace headscope
