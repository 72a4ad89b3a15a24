#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "plugin/examples/attention_only_lm/demo_options.h"

namespace headscope::demo {
namespace {

using testing::HasSubstr;

struct Parsed {
  std::optional<DemoOptions> options;
  int exit_code = -1;
  std::string error;
};

Parsed parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "attention_only_lm");
  Parsed parsed;
  testing::internal::CaptureStderr();
  parsed.options =
      parse_options(static_cast<int>(arguments.size()), arguments.data(), parsed.exit_code);
  parsed.error = testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(DemoOptions, DefaultToTheRecipe) {
  const auto options = parse({}).options;
  ASSERT_TRUE(options);
  EXPECT_EQ(options->layers, 2);
  EXPECT_EQ(options->heads, 8);
  EXPECT_EQ(options->width, 128);
  EXPECT_EQ(options->context, 64);
  EXPECT_EQ(options->batch, 16);
  EXPECT_EQ(options->learning_rate, 5e-3);
  EXPECT_EQ(options->repeat_share, 0.5);
  EXPECT_EQ(options->monitor, MonitorMode::kOn);
}

TEST(DemoOptions, TakeAnIpv6Address) {
  const auto options = parse({"--listen", "[::1]:0"}).options;
  ASSERT_TRUE(options);
  EXPECT_EQ(options->host, "[::1]");
  EXPECT_EQ(options->port, 0);
}

TEST(DemoOptions, SayHowToResume) {
  const auto options = parse({"--seed", "3", "--run-dir", "runs/my run"}).options;
  ASSERT_TRUE(options);
  EXPECT_EQ(options->resume_command, "attention_only_lm --seed 3 --run-dir 'runs/my run' --resume");
  const auto again = parse({"--resume", "--run-dir", "it's"}).options;
  ASSERT_TRUE(again);
  EXPECT_EQ(again->resume_command, R"(attention_only_lm --run-dir 'it'\''s' --resume)");
  const auto unnamed = parse({}).options;
  ASSERT_TRUE(unnamed);
  EXPECT_EQ(unnamed->resume_command,
            "attention_only_lm --run-dir " + unnamed->run_dir + " --resume");
}

struct BadArgument {
  std::vector<const char*> arguments;
  const char* message;
};

class BadArguments : public testing::TestWithParam<BadArgument> {};

TEST_P(BadArguments, NameTheValueAndEndWithTwo) {
  const Parsed parsed = parse(GetParam().arguments);
  EXPECT_FALSE(parsed.options);
  EXPECT_EQ(parsed.exit_code, 2);
  EXPECT_THAT(parsed.error, HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    DemoOptions, BadArguments,
    testing::Values(BadArgument{{"--layers", "0"}, "--layers 0 is too small: give 1 or more"},
                    BadArgument{{"--batch", "0"}, "--batch 0 is too small"},
                    BadArgument{{"--steps", "-3"}, "--steps -3 is too small"},
                    BadArgument{{"--context", "8"}, "--context 8 is too small"},
                    BadArgument{{"--heads", "7"}, "--heads 7 does not divide --width 128"},
                    BadArgument{{"--lr", "nan"}, "is not a learning rate"},
                    BadArgument{{"--repeat-share", "1.5"}, "is not a share"},
                    BadArgument{{"--repeat-share", "nan"}, "is not a share"},
                    BadArgument{{"--threads", "0"}, "--threads 0 is too small"},
                    BadArgument{{"--monitor", "maybe"}, "--monitor 'maybe'"},
                    BadArgument{{"--checkpoint-every", "-1"}, "--checkpoint-every -1 is too small"},
                    BadArgument{{"--resume"}, "--resume does not say which run"},
                    BadArgument{{"--listen", "9464"}, "HOST:PORT"},
                    BadArgument{{"--listen", "127.0.0.1:70000"}, "'70000' is not a port"},
                    BadArgument{{"--unknown"}, "--unknown"}));

}  // namespace
}  // namespace headscope::demo
