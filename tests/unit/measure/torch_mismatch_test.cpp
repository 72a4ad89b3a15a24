#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "csrc/measure/process_check.h"

namespace headscope::measure {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(TorchMismatch, ComparesMajorAndMinor) {
  const auto running = [](const std::string& version) {
    return torch_mismatch("USE_X=1, TORCH_VERSION=" + version + ", USE_CUDA=0", "2.13.0");
  };
  for (const char* same : {"2.13.0", "2.13.7", "2.13", "2.13.0a0+git1234"})
    EXPECT_EQ(running(same), "") << same;
  for (const char* other : {"2.14.0", "2.1.13", "3.13.0", "2.130.0"})
    EXPECT_NE(running(other), "") << other;
  EXPECT_THAT(running("2.14.1"),
              AllOf(HasSubstr("built for torch 2.13,"), HasSubstr("runs torch 2.14,")));
}

TEST(TorchMismatch, AVersionThatIsNotSaidIsNoMismatch) {
  EXPECT_EQ(torch_mismatch("PyTorch built with: GCC", "2.13.0"), "");
}

TEST(ProcessCheck, PassesHere) { EXPECT_NO_THROW(check_process()); }

}  // namespace
}  // namespace headscope::measure
